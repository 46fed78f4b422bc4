"""What questions are about, and types with limits of their fields, by the names that questions.toml has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from ..extraction.job import OPTIMIZERS
from ..operations.attributes import PRECISIONS, RequestedPrecision
from ..operations.operation import MODES
from ..predictors.networks.composition import EXECUTIONS
from ..queries.objectives import OBJECTIVES

Item = TypeVar("Item")

LARGEST = 2**31 - 1
_MOST_FIELDS = 64  # in an object; no question has half as many


def up_to(most: int | None = None, *, least: int | None = None) -> Any:
    """Limits on the length of a list or a mapping. It stops at its first fault, because each fault takes kilobytes."""
    return Field(min_length=least, max_length=most, fail_fast=True)


UpTo5 = Annotated[list[Item], up_to(5)]
UpTo100 = Annotated[list[Item], up_to(100)]
OneTo5 = Annotated[list[Item], up_to(5, least=1)]
OneTo8 = Annotated[list[Item], up_to(8, least=1)]
OneTo100 = Annotated[list[Item], up_to(100, least=1)]
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
Prices = Annotated[dict[Name, Price], up_to(100)]
Hours = Annotated[list[Price], up_to(8784, least=1)]
Clock = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Clocks = Annotated[list[Clock], up_to(1000)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, le=2**63)]
_Tokens = Annotated[int, Field(ge=1, le=10**7)]
Lengths = _Tokens | Annotated[list[Annotated[float, Field(ge=0, le=10**7)]], Field(min_length=2, max_length=100_000)]
Prefixes = Annotated[list[_Tokens], Field(min_length=2, max_length=2)]
PairOfSides = Annotated[list[Side], Field(min_length=2, max_length=2)]
Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Attribute = bool | Number | Annotated[str, Field(max_length=100)] | None | Annotated[list[Number], up_to(16)]
# Options must not be texts, because a text might be a path or an address.
OptionName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,49}$")]
Option = bool | Number | Annotated[list[bool | Number], up_to(64)] | None
Options = Annotated[dict[OptionName, Option], up_to(16)]
Calibration = Annotated[dict[Name, Any], up_to(20), WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]})]
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
    model_options: Options | None = Field(
        None,
        description="Arguments of a model by name: numbers, truth values, and lists of them.",
        examples=[{"image_size": 384}],
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.model is None) == (self.operations is None):
            raise ValueError("either a model or operations")
        return self


class WithTree(Subject):
    """A subject whose prediction may come with its energy tree."""

    tree: bool = Field(False, description="Whether to add the energy by phase, module and operation.")


class ManyItem(Strict):
    """One of many networks: a model by name, or a list of operations."""

    model: Name | None = Field(None, description="Name of a model. Files are not read.")
    operations: Operations | None = None
    name: Name | None = Field(None, description="Name for a list of operations.")
    dropped: DroppedItems | None = Field(None, description="Operators that the extraction of the operations dropped.")


class Many(Strict):
    """Many networks."""

    networks: Annotated[list[ManyItem], up_to()]

    @model_validator(mode="after")
    def _subjects_are_valid(self) -> Self:
        if any((item.model is None) == (item.operations is None) for item in self.networks):
            raise ValueError("each network is either a model or operations")
        return self

    def subjects(self) -> Iterator[Subject]:
        """Each network as the subject of a question of its own."""
        asked = vars(self)
        for item in self.networks:
            shape = asked["input_shape"] if item.model is not None else None
            yield Subject.model_construct(**vars(item), input_shape=shape, mode=asked["mode"])
