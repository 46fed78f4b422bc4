"""The questions that clients may send as bodies. Fields have the library's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from ..operations.operation import MODES
from ..operations.precisions import PRECISIONS, RequestedPrecision
from ..predictors.networks.execution import EXECUTIONS
from ..queries.objectives import OBJECTIVES

LARGEST = 2**31 - 1
Size = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]
Tokens = Annotated[int, Field(ge=1, le=10**7, strict=True)]
Work = Annotated[int, Field(ge=0, le=10**21)]
Shape = Annotated[list[Size], Field(max_length=8)]
InputShape = (
    Annotated[list[Size], Field(min_length=1, max_length=8)]
    | Annotated[list[Shape], Field(min_length=1, max_length=16)]
    | Annotated[dict[Annotated[str, Field(max_length=100)], Shape], Field(min_length=1, max_length=16)]
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
Price = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
Clock = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Attribute = bool | Number | Annotated[str, Field(max_length=100)] | None | Annotated[list[Number], Field(max_length=16)]
# An option is no text, which might be a path or an address.
OptionName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,49}$")]
Option = bool | Number | Annotated[list[bool | Number], Field(max_length=64)] | None
Assumed = Annotated[int, Field(ge=1, le=100_000)] | Name


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OperationItem(_Strict):
    """One operation, as `joulecast extract --json` lists it."""

    kind: Name = Field(examples=["linear"])
    input_shapes: Annotated[list[Shape], Field(min_length=1, max_length=256)] = Field(examples=[[[32, 128]]])
    attributes: Annotated[dict[str, Attribute], Field(max_length=32)] | None = Field(
        None, examples=[{"out_features": 64, "bias": True}]
    )
    precision: OperationPrecision = "fp32"
    mode: Mode = "inference"
    count: Annotated[int, Field(ge=1, le=10**9, description="Calls per iteration.")] = 1
    module_paths: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=10_000)] = []
    module_counts: Annotated[list[Size], Field(max_length=10_000)] = []


class DroppedWorkItem(_Strict):
    """The size of dropped work in the forward pass, all calls together."""

    flops: Work
    moved_bytes: Work
    parameter_bytes: Work
    output_bytes: Work
    largest_bytes: Work


class DroppedItem(_Strict):
    """Work that extraction found but that no operation kind describes. It counts as not covered."""

    name: Name
    count: Annotated[int, Field(ge=1, le=10**9)]
    module_paths: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=10_000)]
    reason: Name
    work: DroppedWorkItem | None = Field(
        None, description="As extraction reports it. Without it the prediction has no interval."
    )


class Subject(_Strict):
    """A model by name with the shape of its input, or a list of operations."""

    model: Name | None = Field(None, description="Name of a model. Files are not read.", examples=["resnet50"])
    operations: Annotated[list[OperationItem], Field(min_length=1)] | None = Field(
        None, description="Instead of a model: its operations with their counts."
    )
    name: Name | None = Field(None, description="Name for a list of operations.")
    dropped: Annotated[list[DroppedItem], Field(max_length=1000)] | None = Field(
        None, description="Operators that the extraction of the operations dropped."
    )
    assumptions: Annotated[list[Name], Field(max_length=10)] = Field(
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
    assume: Annotated[dict[Name, Assumed], Field(max_length=3)] | None = Field(
        None,
        description="Stand-ins for values that only the input has, of a model by name: `experts` is uniform, `boxes` "
        "and `box_side` (pixels) are numbers up to 100000.",
        examples=[{"boxes": 100}],
    )
    model_options: Annotated[dict[OptionName, Option], Field(max_length=16)] | None = Field(
        None,
        description="Arguments of a model by name: numbers, truth values, and lists of them.",
        examples=[{"image_size": 384}],
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.model is None) == (self.operations is None):
            raise ValueError("either a model or operations")
        return self


class Run(Subject):
    """A subject, how it is run, and on which host."""

    execution: HowRun = Field(
        "eager", description="eager, graph (replayed as a CUDA graph), or compiled (by torch.compile)."
    )
    host: HostFactor | Name | None = Field(
        None,
        description="The machine that launches operations: a factor on the reference host's time, or a host's name; "
        "none for the host that is usual for the GPU.",
        examples=[0.5],
    )


class OnePrecision(Subject):
    """A subject in one precision."""

    precision: Precision = "default"


class PredictQuestion(OnePrecision, Run):
    """The cost of one iteration on a GPU; see `joulecast.predict`."""

    gpu: Name = Field(description="Name or alias from the catalogue.", examples=["A30"])
    clock_mhz: Clock | None = Field(None, description="Graphics clock. Default: the GPU's own default.")
    power_limit_w: Positive | None = Field(None, description="Power cap. Default: the board's own default.")
    predictor: Name | None = Field(None, description="A zoo name. Default: the best for the GPU.")
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


class SweepQuestion(Run):
    """A job on several GPUs, clocks and precisions; see `joulecast.sweep`."""

    objective: Objective = "energy"
    gpus: Annotated[list[Name], Field(max_length=100)] | None = Field(
        None, description="Names or aliases. Default: the whole catalogue.", examples=[["A30", "H100 SXM"]]
    )
    clocks_mhz: Annotated[list[Clock], Field(max_length=1000)] | None = Field(
        None, description="Default: up to 40 clocks of each GPU."
    )
    power_limit_w: Positive | None = None
    precision: Precision | Annotated[list[Precision], Field(max_length=5)] = "default"
    batch_sizes: Annotated[list[Size], Field(max_length=100)] | None = None
    predictor: Name | None = None
    price_per_hour: Price | Annotated[dict[Name, Price], Field(max_length=100)] | None = Field(
        None, description="One price for every GPU, or prices by GPU."
    )
    price_per_kwh: Price | None = None
    carbon: Price | Name | None = Field(None, description="Grams of CO2 per kWh, or a country such as DE.")

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

    optimizer: Annotated[str, WithJsonSchema({"type": "string", "enum": ["sgd", "adam", "adamw"]})] | None = None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "resnet18", "input_shape": [8, 3, 224, 224], "mode": "training"}]}
    )


class OperationsQuestion(_Strict):
    """Single operations, each alone in a loop; see `joulecast.predict_operations`."""

    operations: Annotated[list[OperationItem], Field(min_length=1)]
    gpu: Name = Field(examples=["A30"])
    clock_mhz: Clock | None = None
    power_limit_w: Positive | None = None
    predictor: Name | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"operations": [{"kind": "relu", "input_shapes": [[32, 64, 56, 56]]}], "gpu": "A30"}]
        }
    )


class GenerateQuestion(_Strict):
    """What text costs that an engine writes; see `joulecast.predict_generation`."""

    model: Name = Field(description="Name of a language model.", examples=["llama3_8b"])
    gpu: Name = Field(
        description="Name or alias from the catalogue; with a number for several.", examples=["2x H100 SXM"]
    )
    batch: Size = Field(description="Sequences at a time, on all GPUs together.", examples=[64])
    prompt_tokens: Tokens = Field(examples=[512])
    output_tokens: Tokens = Field(examples=[512])
    precision: Name = Field("bf16", description="Of the weights: bf16, fp16, fp8 or nvfp4.")
    engine: Name = Field("vllm", description="vllm, sglang or tensorrt_llm.")
    tensor_parallel: Size = 1
    expert_parallel: Size = 1
    batching: Name | None = Field(None, description="continuous or static. Default: what the engine does.")
    clock_mhz: Clock | None = Field(None, description="Graphics clock. Default: the GPU's own default.")
    power_limit_w: Positive | None = Field(None, description="Power cap of a board. Default: its own default.")
    cache_precision: Name | None = Field(None, description="fp8 for keys and values. Default: 16 bits.")
    predictor: Name | None = Field(None, description="A zoo name. Default: the best for the GPU.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "llama3_8b", "gpu": "H100 SXM", "batch": 64, "prompt_tokens": 512, "output_tokens": 512}
            ]
        }
    )


class ExplainQuestion(_Strict):
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


class BatchQuestion(_Strict):
    """Many predictions at once. If all fit the schema, each is answered or refused independently."""

    requests: Annotated[list[PredictQuestion], Field(min_length=1)]
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
