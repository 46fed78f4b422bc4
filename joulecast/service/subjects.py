"""What questions are about, and the types of their fields: a model or its operations, and how it is run."""

from __future__ import annotations

from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from ..extraction.optimizers import OPTIMIZERS
from ..operations.operation import MODES
from ..operations.precisions import PRECISIONS, RequestedPrecision
from ..predictors.networks.execution import EXECUTIONS
from ..queries.objectives import OBJECTIVES

LARGEST = 2**31 - 1
_MOST_FIELDS = 64  # in an object; no question has half as many


def up_to(most: int | None = None, *, least: int | None = None) -> Any:
    """Limits on the length of a list or a mapping. It stops at its first fault, because each fault takes kilobytes."""
    return Field(min_length=least, max_length=most, fail_fast=True)


Size = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]
Tokens = Annotated[int, Field(ge=1, le=10**7, strict=True)]
Side = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Work = Annotated[int, Field(ge=0, le=10**21)]
Shape = Annotated[list[Size], up_to(8)]
InputShape = (
    Annotated[list[Size], up_to(8, least=1)]
    | Annotated[list[Shape], up_to(16, least=1)]
    | Annotated[dict[Annotated[str, Field(max_length=100)], Shape], up_to(16, least=1)]
)
# The library checks names and has the better error messages. The schema only documents the allowed values.
Name = Annotated[str, Field(min_length=1, max_length=100)]
Mode = Annotated[str, WithJsonSchema({"type": "string", "enum": list(MODES)})]
Precision = Annotated[str, WithJsonSchema({"type": "string", "enum": list(get_args(RequestedPrecision))})]
OperationPrecision = Annotated[str, WithJsonSchema({"type": "string", "enum": list(PRECISIONS)})]
Composition = Annotated[str, WithJsonSchema({"type": "string", "enum": ["overlap", "sum"]})]
HostFactor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
HowRun = Annotated[str, WithJsonSchema({"type": "string", "enum": list(EXECUTIONS)})]
Objective = Annotated[str, WithJsonSchema({"type": "string", "enum": list(OBJECTIVES)})]
Optimizer = Annotated[str, WithJsonSchema({"type": "string", "enum": [*OPTIMIZERS]})]
Price = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
PricePerHour = Annotated[
    Price | Annotated[dict[Name, Price], up_to(100)] | None,
    Field(description="One price for every GPU, or prices by GPU."),
]
Carbon = Annotated[Price | Name | None, Field(description="Grams of CO2 per kWh, or a country such as DE.")]
Clock = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
GpuClock = Annotated[Clock | None, Field(description="Graphics clock. Default: the GPU's own default.")]
PowerCap = Annotated[Positive | None, Field(description="Power cap. Default: the board's own default.")]
PowerCapOfEach = Annotated[Positive | None, Field(description="Power cap of a board. Default: its own default.")]
PredictorName = Annotated[Name | None, Field(description="A zoo name. Default: the best for the GPU.")]
Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Attribute = bool | Number | Annotated[str, Field(max_length=100)] | None | Annotated[list[Number], up_to(16)]
# Options must not be texts, because a text might be a path or an address.
OptionName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,49}$")]
Option = bool | Number | Annotated[list[bool | Number], up_to(64)] | None
Assumed = Annotated[int, Field(ge=1, le=100_000)] | Name


class Strict(BaseModel):
    """A part of a body: unknown fields are refused, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, content: Any) -> Any:
        """Refuse an object with many fields as a whole, because each that is unknown would be a fault of its own."""
        if isinstance(content, dict) and len(content) > _MOST_FIELDS:
            raise ValueError(f"an object with up to {_MOST_FIELDS} fields")
        return content


class OperationItem(Strict):
    """One operation, as `joulecast extract --json` lists it."""

    kind: Name = Field(examples=["linear"])
    input_shapes: Annotated[list[Shape], up_to(256, least=1)] = Field(examples=[[[32, 128]]])
    attributes: Annotated[dict[str, Attribute], up_to(32)] | None = Field(
        None, examples=[{"out_features": 64, "bias": True}]
    )
    precision: OperationPrecision = "fp32"
    mode: Mode = "inference"
    count: Annotated[int, Field(ge=1, le=10**9, description="Calls per iteration.")] = 1
    module_paths: Annotated[list[Annotated[str, Field(max_length=1000)]], up_to(10_000)] = []
    module_counts: Annotated[list[Size], up_to(10_000)] = []


class DroppedWorkItem(Strict):
    """The size of dropped work in the forward pass, all calls together."""

    flops: Work
    moved_bytes: Work
    parameter_bytes: Work
    output_bytes: Work
    largest_bytes: Work


class DroppedItem(Strict):
    """Work that extraction found but that no operation kind describes. It counts as not covered."""

    name: Name
    count: Annotated[int, Field(ge=1, le=10**9)]
    module_paths: Annotated[list[Annotated[str, Field(max_length=1000)]], up_to(10_000)]
    reason: Name
    work: DroppedWorkItem | None = Field(
        None, description="As extraction reports it. Without it the prediction has no interval."
    )


Operations = Annotated[list[OperationItem], up_to(least=1)]
DroppedItems = Annotated[list[DroppedItem], up_to(1000)]


class Subject(Strict):
    """A model by name with the shape of its input, or a list of operations."""

    model: Name | None = Field(None, description="Name of a model. Files are not read.", examples=["resnet50"])
    operations: Operations | None = Field(None, description="Instead of a model: its operations with their counts.")
    name: Name | None = Field(None, description="Name for a list of operations.")
    dropped: DroppedItems | None = Field(None, description="Operators that the extraction of the operations dropped.")
    assumptions: Annotated[list[Name], up_to(10)] = Field(
        [], description="Assumptions made when the operations were extracted; the answer repeats them."
    )
    input_shape: InputShape | None = Field(
        None,
        description="Shape of a model's input, batch first; a list of shapes; or shapes by name. Together with "
        "operations: the shape that they were extracted at; the answer repeats it.",
        examples=[[32, 3, 224, 224]],
    )
    mode: Mode = "inference"
    cache_length: Size | None = Field(None, description="Tokens in a transformer's cache before this call.")
    optimizer: Optimizer | None = Field(
        None, description="Optimizer whose step is part of a training iteration of a named model. Default: none."
    )
    assume: Annotated[dict[Name, Assumed], up_to(4)] | None = Field(
        None,
        description="Assumptions about values of the input of a named model: `experts` is uniform, `boxes` "
        "and `box_side` (pixels) are numbers up to 100000; `attention` is the library that computes it, such as cudnn.",
        examples=[{"boxes": 100}],
    )
    model_options: Annotated[dict[OptionName, Option], up_to(16)] | None = Field(
        None,
        description="Arguments of a model by name: numbers, truth values, and lists of them.",
        examples=[{"image_size": 384}],
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.model is None) == (self.operations is None):
            raise ValueError("either a model or operations")
        return self


class OnHost(Strict):
    """How a job is run, and on which host."""

    execution: HowRun = Field(
        "eager", description="eager, graph (replayed as a CUDA graph), or compiled (by torch.compile)."
    )
    host: HostFactor | Name | None = Field(
        None,
        description="The machine that launches operations: a factor on the reference host's time, or a host's name; "
        "none for the host that is typical for the GPU.",
        examples=[0.5],
    )


class Run(OnHost, Subject):
    """A subject, how it is run, and on which host."""


class OnePrecision(Subject):
    """A subject in one precision."""

    precision: Precision = "default"
