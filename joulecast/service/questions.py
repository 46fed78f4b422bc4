"""The questions that clients may send as bodies. Fields have the library's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..operations.attributes import PRECISIONS, RequestedPrecision
from ..operations.operation import MODES
from ..predictors.networks.execution import EXECUTIONS
from .subjects import (
    Carbon,
    Clock,
    Composition,
    DroppedItems,
    GpuClock,
    InputShape,
    Mode,
    Name,
    Objective,
    OnePrecision,
    OnHost,
    OperationItem,
    Operations,
    Positive,
    PowerCap,
    Precision,
    PredictorName,
    Price,
    PricePerHour,
    Run,
    Size,
    Strict,
    Subject,
    up_to,
)


class PredictQuestion(OnePrecision, Run):
    """The cost of one iteration on a GPU; see `joulecast.predict`."""

    gpu: Name = Field(description="Name or alias from the catalogue.", examples=["A30"])
    clock_mhz: GpuClock = None
    power_limit_w: PowerCap = None
    predictor: PredictorName = None
    composition: Composition | None = None
    strict: bool = Field(False, description="Refuse the request if an operation is not covered.")
    tree: bool = Field(
        False, description="Whether to add the energy by phase, module and operation. A batch never has it."
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "resnet50", "input_shape": [32, 3, 224, 224], "gpu": "A30"},
                {
                    "model": "llama3_8b",
                    "input_shape": [8, 1],
                    "gpu": "H100 SXM",
                    "precision": "bf16",
                    "cache_length": 2048,
                },
                {
                    "operations": [
                        {"kind": "linear", "input_shapes": [[32, 128]], "attributes": {"out_features": 64}, "count": 3}
                    ],
                    "gpu": "A30",
                    "clock_mhz": 900,
                },
            ]
        }
    )


class ManyItem(Strict):
    """One of many networks: a model by name, or a list of operations."""

    model: Name | None = Field(None, description="Name of a model. Files are not read.")
    operations: Operations | None = None
    name: Name | None = Field(None, description="Name for a list of operations.")
    dropped: DroppedItems | None = Field(None, description="Operators that the extraction of the operations dropped.")


class ManyQuestion(OnHost):
    """The totals of many networks on one GPU; see `joulecast.predict_many`."""

    networks: Annotated[list[ManyItem], up_to()]
    input_shape: InputShape | None = Field(None, description="Shape of the input of all models that are named.")
    gpu: Name = Field(description="Name or alias from the catalogue.", examples=["A30"])
    clock_mhz: GpuClock = None
    power_limit_w: PowerCap = None
    mode: Mode = "inference"
    precision: Precision = "default"
    predictor: PredictorName = None
    composition: Composition | None = None

    @model_validator(mode="after")
    def _subjects_are_valid(self) -> Self:
        if any((item.model is None) == (item.operations is None) for item in self.networks):
            raise ValueError("each network is either a model or operations")
        return self

    def subjects(self) -> Iterator[Subject]:
        """Each network as the subject of a question of its own."""
        for item in self.networks:
            shape = self.input_shape if item.model is not None else None
            yield Subject.model_construct(**vars(item), input_shape=shape, mode=self.mode)

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "networks": [{"model": "resnet18"}, {"model": "resnet34"}],
                    "input_shape": [8, 3, 64, 64],
                    "gpu": "A30",
                }
            ]
        }
    )


class SweepQuestion(Run):
    """A job on several GPUs, clocks and precisions; see `joulecast.sweep`."""

    objective: Objective = "energy"
    gpus: Annotated[list[Name], up_to(100)] | None = Field(
        None, description="Names or aliases. Default: the whole catalogue.", examples=[["A30", "H100 SXM"]]
    )
    clocks_mhz: Annotated[list[Clock], up_to(1000)] | None = Field(
        None, description="Default: up to 40 clocks of each GPU."
    )
    power_limit_w: Positive | None = None
    precision: Precision | Annotated[list[Precision], up_to(5)] = "default"
    batch_sizes: Annotated[list[Size], up_to(100)] | None = None
    predictor: Name | None = None
    price_per_hour: PricePerHour = None
    price_per_kwh: Price | None = None
    carbon: Carbon = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "resnet50", "input_shape": [32, 3, 224, 224], "gpus": ["A30", "H100 SXM"]}]
        }
    )


class BestQuestion(SweepQuestion):
    """The best choices for a job; see `joulecast.best`."""

    max_time_s: Positive | None = Field(None, description="Deadline: longest time of an iteration.")
    max_power_w: Positive | None = Field(None, description="Power budget: highest mean board power over an iteration.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "resnet50", "input_shape": [32, 3, 224, 224]},
                {
                    "model": "bert_base",
                    "input_shape": [8, 128],
                    "objective": "cost",
                    "price_per_hour": {"A30": 0.5, "L4": 0.7, "H100 SXM": 3.0},
                    "precision": ["fp32", "fp16"],
                    "max_time_s": 0.05,
                },
            ]
        }
    )


class ExtractQuestion(OnePrecision):
    """The operations of a model; see `joulecast.extract`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "resnet18", "input_shape": [8, 3, 224, 224], "mode": "training"}]}
    )


class OperationsQuestion(Strict):
    """Single operations, each alone in a loop; see `joulecast.predict_operations`."""

    operations: Operations
    gpu: Name = Field(examples=["A30"])
    clock_mhz: Clock | None = None
    power_limit_w: Positive | None = None
    predictor: Name | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"operations": [{"kind": "relu", "input_shapes": [[32, 64, 56, 56]]}], "gpu": "A30"}]
        }
    )


class ExplainQuestion(Strict):
    """The explanation of an operation's prediction; see `joulecast.explain`."""

    operation: OperationItem
    gpu: Name = Field(examples=["A30"])
    clock_mhz: Clock | None = None
    predictor: Name | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"operation": {"kind": "relu", "input_shapes": [[32, 64, 56, 56]]}, "gpu": "A30"}]
        }
    )


_WORDS: Mapping[str, Sequence[str | None]] = {
    "mode": MODES,
    "precision": get_args(RequestedPrecision),
    "composition": (None, "overlap", "sum"),
    "execution": EXECUTIONS,
}
_OPERATION_WORDS: Mapping[str, Sequence[str | None]] = {"mode": MODES, "precision": PRECISIONS}


def _require(place: str, question: BaseModel, words: Mapping[str, Sequence[str | None]]) -> None:
    for name, allowed in words.items():
        if (given := getattr(question, name)) not in allowed:
            listed = ", ".join(word for word in allowed if word)
            raise ValueError(f"{place}.{name}: {given!r} is none of {listed}")


class BatchQuestion(Strict):
    """Many predictions at once. If all fit the schema, each is answered or refused independently."""

    requests: Annotated[list[PredictQuestion], up_to(least=1)]
    details: bool = Field(False, description="Whether to list the operations of each.")

    @model_validator(mode="after")
    def _known_words(self) -> Self:
        """Refuse a batch with words outside the schema. In a single question the library refuses them itself."""
        for place, request in enumerate(self.requests):
            _require(f"requests.{place}", request, _WORDS)
            for item in request.operations or ():
                _require(f"requests.{place}.operations", item, _OPERATION_WORDS)
        return self

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "requests": [
                        {"model": "resnet18", "input_shape": [8, 3, 224, 224], "gpu": "A30"},
                        {"model": "resnet34", "input_shape": [8, 3, 224, 224], "gpu": "A30"},
                    ]
                }
            ]
        }
    )
