"""The questions that clients may send, made from the library's functions: each argument becomes a field."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from .. import api
from ..api.choosing import best, sweep
from ..api.operations import explain, predict_operations
from ..generation.generate import predict_generation
from ..generation.images.predict import predict_image
from ..operations.attributes import PRECISIONS, RequestedPrecision
from ..operations.operation import MODES
from ..predictors.networks.execution import EXECUTIONS
from ..remote.requests import NAMES, ONLY_HERE
from ..runs.choosing import best_run
from ..runs.parallel import predict_parallel_training
from ..runs.predict import predict_run
from ..traffic.best import best_generation
from ..traffic.simulate import simulate_serving
from .question_fields import (
    FIELDS,
    GPUS,
    LENGTHS,
    TYPES,
    Amount,
    Clock,
    Declared,
    DroppedItems,
    Lengths,
    Name,
    Operations,
    Option,
    OptionName,
    Positive,
    Precision,
    Price,
    Side,
    Size,
    Strict,
    Subject,
    up_to,
)
from .schema import documented

_EXAMPLES = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))


def _showing(name: str) -> ConfigDict:
    """Configuration of a class of which the OpenAPI document shows examples."""
    return ConfigDict(json_schema_extra={"examples": _EXAMPLES[name]})


_NONE = re.compile(r"(?:;|\.) None for (.+?)(?=[.;:]|$)")
"""What a docstring says of None, which is the default of a field that is left out."""


def _question(
    name: str,
    function: Callable[..., Any],
    about: str,
    *,
    base: type[BaseModel] = Strict,
    **changed: Declared,
) -> Any:
    """The class of the questions that a function answers: its arguments as fields, in the words of its docstring.

    Types follow from annotations, where neither `changed` nor `FIELDS` has them.
    """
    fields: dict[str, Any] = {}
    words = {**documented(best), **documented(function)}
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument in ONLY_HERE or argument in base.model_fields:
            continue
        declared = changed[argument] if argument in changed else FIELDS.get(argument)
        if declared is None:
            name_of, _, optional = str(parameter.annotation).partition(" | ")
            declared = TYPES[name_of] | None if optional else TYPES[name_of]
        said = _NONE.sub(r". Default: \1", words.get(argument, ""))
        type_, description, *example = declared if isinstance(declared, tuple) else (declared, said)
        default = [*parameter.default] if isinstance(parameter.default, tuple) else parameter.default
        if default is inspect.Parameter.empty or (default is None and argument == "gpu"):
            default = ...
        fields[NAMES.get(argument, argument)] = type_, Field(default, description=description, examples=example or None)
    extra = type(f"_{name}", (base,), {"model_config": _showing(name), "__module__": __name__})
    return create_model(name, __base__=extra, __doc__=f"{about}; see `joulecast.{function.__name__}`.", **fields)


class _WithTree(Subject):
    tree: bool = Field(
        False, description="Whether to add the energy by phase, module and operation. A batch never has it."
    )


PredictQuestion = _question(
    "PredictQuestion",
    api.predict,
    "The cost of one iteration on a GPU",
    base=_WithTree,
)

ExtractQuestion = _question(
    "ExtractQuestion",
    api.extract,
    "The operations of a model",
    base=Subject,
)

_PRECISIONS = (Precision | Annotated[list[Precision], up_to(5)], "One precision, or several to compare.")

SweepQuestion = _question(
    "SweepQuestion",
    sweep,
    "A job on several GPUs, clocks and precisions",
    base=Subject,
    precision=_PRECISIONS,
)

BestQuestion = _question(
    "BestQuestion",
    best,
    "The best choices for a job",
    base=Subject,
    precision=_PRECISIONS,
)

OperationsQuestion = _question(
    "OperationsQuestion",
    predict_operations,
    "Single operations, each alone in a loop",
)

ExplainQuestion = _question(
    "ExplainQuestion",
    explain,
    "The explanation of an operation's prediction",
)


class ManyItem(Strict):
    """One of many networks: a model by name, or a list of operations."""

    model: Name | None = Field(None, description="Name of a model. Files are not read.")
    operations: Operations | None = None
    name: Name | None = Field(None, description="Name for a list of operations.")
    dropped: DroppedItems | None = Field(None, description="Operators that the extraction of the operations dropped.")


class _Many(Strict):
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


_LEVEL = (Annotated[float, Field(gt=0, lt=1)] | None, "Share that lies within intervals, such as 0.9. Default: none.")

ManyQuestion = _question(
    "ManyQuestion",
    api.predict_many,
    "The totals of many networks",
    base=_Many,
    gpu=(Name | Annotated[list[Name], up_to(100, least=1)], "Name or alias from the catalogue, or several.", "A30"),
    clock=(
        Clock | Annotated[list[Clock], up_to(100, least=1)] | None,
        "Graphics clock, or several. Default: each GPU's.",
    ),
    level=_LEVEL,
)

_Sizes = Annotated[list[Size], up_to(8, least=1)]
_Caps = Positive | Annotated[list[Positive], up_to(8, least=1)]
_NotNegative = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
_GPU_OR_SEVERAL = (Name, "Name or alias from the catalogue; with a number for several.", "2x H100 SXM")

GenerationQuestion = _question(
    "GenerationQuestion",
    predict_generation,
    "What text costs that an engine writes",
    gpu=_GPU_OR_SEVERAL,
    precision=(Name, "Of the weights: bf16, fp16, fp8, nvfp4, mxfp4 or int4."),
)

_Share = Annotated[float, Field(ge=0, le=1)]
_Seed = Annotated[int, Field(ge=0, le=2**63)]

BestGenerationQuestion = _question(
    "BestGenerationQuestion",
    best_generation,
    "The best ways to serve a language model",
    gpus=(GPUS, "Names or aliases, or with a number. Default: the whole catalogue.", ["H100 SXM"]),
    objective=Name,
    power_limit_w=_Caps | None,
    max_gpus=Side,
    burstiness=Annotated[float, Field(gt=0, le=100)],
    prefix_hit_rate=_Share,
    draft_tokens=Annotated[int, Field(ge=0, le=32)],
    draft_model=(Name | None, "Name of the model that drafts. Default: drafts cost nothing."),
    acceptance=_Share,
    seed=_Seed,
)

ServingQuestion = _question(
    "ServingQuestion",
    simulate_serving,
    "A language model that serves requests as they arrive",
    gpu=_GPU_OR_SEVERAL,
    precision=(Name, "Of the weights: bf16, fp16, fp8, nvfp4, mxfp4 or int4."),
    requests=(Positive | None, "Mean requests per second."),
    prompt_tokens=(Lengths | None, LENGTHS, 500),
    output_tokens=(Lengths | None, LENGTHS, 300),
    seed=_Seed,
    burstiness=Annotated[float, Field(ge=0, le=100)],
    warmup_s=Annotated[float, Field(ge=0, le=1e9)],
    prefixes=(
        Annotated[list[Annotated[int, Field(ge=1, le=10**7)]], Field(min_length=2, max_length=2)] | None,
        "How many beginnings prompts share, and tokens of each.",
        [20, 1000],
    ),
    level=_LEVEL,
    max_sequences=Side,
    max_step_tokens=Side | None,
    prefix_hit_rate=_Share,
    prefill_replicas=Annotated[int, Field(ge=0, le=10_000)],
    prefill_clock=Clock | None,
    draft_tokens=Annotated[int, Field(ge=0, le=32)],
    draft_model=(Name | None, "Name of the model that drafts. Default: drafts cost nothing."),
    acceptance=_Share,
)

ImageQuestion = _question(
    "ImageQuestion",
    predict_image,
    "What images or videos cost",
    model=(Name, "Name of a pipeline.", "sd3_5_medium"),
    gpu=_GPU_OR_SEVERAL,
    batch=Side,
    precision=Name,
    gpus=Size | None,
)

ParallelTrainingQuestion = _question(
    "ParallelTrainingQuestion",
    predict_parallel_training,
    "An iteration of training over the GPUs of a node",
    model=(Name, "Name of a transformer.", "gpt2_xl"),
    input_shape=_Sizes,
    gpu=(Name, "The GPUs; a name without a number for as many as are used.", "H100 SXM"),
)

_TRAINED: dict[str, Any] = {
    "model": (Name, "Name of a model.", "bert_base"),
    "input_shape": (_Sizes, "Of the input of a step, of all GPUs and micro-batches together, batch first.", [32, 128]),
    "precision": (Name, "default, fp32, tf32, fp16, bf16, fp8, amp or amp_fp16."),
    "samples": Amount | None,
    "tokens": Amount | None,
    "lora": Side | None,
    "lora_targets": Name | Annotated[list[Name], up_to(100)] | None,
    "model_options": (Annotated[dict[OptionName, Option], up_to(16)] | None, "Arguments of the model."),
}

RunQuestion = _question(
    "RunQuestion",
    predict_run,
    "A whole training run",
    **_TRAINED,
    gpu=(Name, "The GPUs.", "8x H100 SXM"),
    context_parallel=Side,
    expert_parallel=Side,
    virtual_stages=Side,
    gpus_per_node=Side,
    network_bandwidth=Amount | None,
    evaluation_samples=_NotNegative,
    checkpoints=Annotated[int, Field(ge=0, le=10**9)],
    checkpoint_bandwidth=Amount,
    embodied_g_per_hour=Price,
)

BestRunQuestion = _question(
    "BestRunQuestion",
    best_run,
    "Where and how to train a model",
    **_TRAINED,
    gpus=(GPUS, "Names or aliases, or with a number. Default: the whole catalogue.", ["8x H100 SXM"]),
    objective=Name,
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

    requests: Annotated[list[PredictQuestion], up_to(least=1)]  # type: ignore[valid-type]
    details: bool = Field(False, description="Whether to list the operations of each.")

    @model_validator(mode="after")
    def _known_words(self) -> Self:
        """Refuse a batch with words outside the schema. In a single question the library refuses them itself."""
        for place, request in enumerate(self.requests):
            _require(f"requests.{place}", request, _WORDS)
            for item in getattr(request, "operations", None) or ():
                _require(f"requests.{place}.operations", item, _OPERATION_WORDS)
        return self

    model_config = _showing("BatchQuestion")
