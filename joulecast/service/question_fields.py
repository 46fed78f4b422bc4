"""What questions are about, the types of fields with their limits, and the field of each argument of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from ..extraction.job import OPTIMIZERS
from ..generation.engines import ENGINES
from ..operations.attributes import PRECISIONS, RequestedPrecision
from ..operations.operation import MODES
from ..predictors.networks.execution import EXECUTIONS
from ..queries.objectives import OBJECTIVES

LARGEST = 2**31 - 1
_MOST_FIELDS = 64  # in an object; no question has half as many


def up_to(most: int | None = None, *, least: int | None = None) -> Any:
    """Limits on the length of a list or a mapping. It stops at its first fault, because each fault takes kilobytes."""
    return Field(min_length=least, max_length=most, fail_fast=True)


Size = Annotated[int, Field(ge=1, le=LARGEST)]
Side = Annotated[int, Field(ge=1, le=100_000)]
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
Clock = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
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


_SERVED = ", ".join(engine.name for engine in ENGINES.values() if engine.fused) + "; /v1/execution lists them"
LENGTHS = "A number, [mean, standard deviation], or the lengths of many requests."
Lengths = (
    Annotated[int, Field(ge=1, le=10**7)]
    | Annotated[list[Annotated[float, Field(ge=0, le=10**7)]], Field(min_length=2, max_length=100_000)]
)
_GPU = "Name or alias from the catalogue."
GPUS = Annotated[list[Name], up_to(100)] | None
CLOCKS = Annotated[list[Clock], up_to(1000)] | None
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]

Declared = Any
"""Type of a field; or its type, its description where that is not the argument's own, and an example."""

FIELDS: Mapping[str, Declared] = {
    "batch_sizes": Annotated[list[Size], up_to(100)] | None,
    "batches": Annotated[list[Size], up_to(100, least=1)] | None,
    "calibration": (
        Annotated[dict[Name, Any], up_to(20), WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]})]
        | None,
        "What `joulecast calibrate` measured on a board of the GPU: the content of its file, or a name that "
        "/v1/calibrations lists.",
    ),
    "carbon": (Price | Name | None, "Grams of CO2 per kWh, or a country such as DE."),
    "clock": Clock | None,
    "clocks": CLOCKS,
    "composition": Composition | None,
    "counts": Annotated[list[Size], up_to(8, least=1)],
    "engine": (Name, _SERVED),
    "execution": (HowRun, "eager, graph (replayed as a CUDA graph), or compiled (by torch.compile)."),
    "frames": Side | None,
    "gpu": (Name, _GPU, "A30"),
    "gpus": (GPUS, "Names or aliases. Default: the whole catalogue.", ["A30", "H100 SXM"]),
    "height": Side | None,
    "host": (
        HostFactor | Name | None,
        "The machine that launches operations: a factor on the reference host's time, or a host's name; none for the "
        "host that is typical for the GPU.",
        0.5,
    ),
    "input_shape": (InputShape | None, "Shape of the input of all models that are named."),
    "mode": Mode,
    "model": (Name, "Name of a language model.", "llama3_8b"),
    "objective": Objective,
    "operation": (OperationItem, "The operation."),
    "operations": (Operations, "Operations of one mode."),
    "optimizer": (Optimizer | None, "Optimizer whose step is part of an iteration."),
    "output_tokens": (Lengths, LENGTHS, 512),
    "precision": (Precision, "What operations run in."),
    "precisions": (
        Annotated[list[Name], up_to(5, least=1)],
        "Of the weights, to choose from: bf16, fp16, fp8, nvfp4, mxfp4 or int4.",
    ),
    "predictor": (Name | None, "A zoo name. Default: the best for the GPU."),
    "price_per_hour": (
        Price | Annotated[dict[Name, Price], up_to(100)] | None,
        "One price for every GPU, or prices by GPU.",
    ),
    "price_per_kwh": Price | None,
    "prompt_tokens": (Lengths, LENGTHS, 512),
    "steps": Side | None,
    "width": Side | None,
}
"""Argument of the library's functions -> its field, where its annotation and docstring do not say everything."""

TYPES: Mapping[str, Any] = {"bool": bool, "int": Size, "float": Positive, "str": Name}
"""Annotation of an argument -> type of its field, with limits."""
