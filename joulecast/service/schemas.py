"""Schemas of the answers, for the OpenAPI document, made from the library's dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from pydantic import Field

from ..generation.choices import GenerationChoice
from ..generation.deployment import GenerationMemory
from ..generation.images.predict import ImageInterval, ImagePrediction
from ..generation.intervals import GenerationInterval
from ..generation.prediction import GenerationPrediction
from ..hardware.gpu import GPU
from ..hardware.host import Host
from ..predictors.explanation import Explanation
from ..predictors.networks.interval import Interval
from ..predictors.networks.many import NetworkPredictions
from ..predictors.networks.prediction import Prediction
from ..queries.choice import WRITTEN, Choice
from ..queries.objectives import Grid
from ..runs import Layout, Part, Run, RunInterval
from ..runs.parallel import ParallelTraining
from ..traffic import ServingSimulation
from .schema import Open, answer_of, object_of, said, several


class Problem(Open):
    """An error (RFC 9457), with the parts of the library's errors."""

    type: str = Field(examples=["urn:joulecast:problem:unknown-name"])
    title: str = Field(description="What is wrong.", examples=["unknown GPU"])
    status: int = Field(examples=[422])
    detail: str = Field(description="All parts of the message as one text.")
    given: str | None = Field(description="What was given.", examples=["'A31'"])
    allowed: str | None = Field(description="What is allowed.")
    hint: str | None = Field(description="What to do next.", examples=["did you mean A30?"])
    instance: str | None = Field(None, description="Id of the request, as in the log of the service.")


_Ends = list[float] | None

IntervalAnswer = answer_of(
    "IntervalAnswer",
    Interval,
    "Low and high of each quantity.",
    time_s=list[float],
    power_w=_Ends,
    energy_j=_Ends,
    edp_js=_Ends,
)


class OperationAnswer(Open):
    """One operation of a network, with all its calls together. Values that are missing are null."""

    kind: str
    input_shapes: list[list[int]]
    attributes: dict[str, Any]
    precision: str
    mode: str
    count: int
    module_paths: list[str]
    module_counts: list[int] = Field([], description="Calls in each of these modules; omitted where it is one in each.")
    device_time_s: float | None
    power_w: float | None
    energy_j: float | None
    source: str = Field(examples=["measured", "modelled", "missing"])
    bound_by: str = Field(examples=["compute", "memory", "launch"])


_SUMMARY = (
    "network mode gpu clock_mhz held_clock_mhz power_limit_w predictor composition execution host time_s power_w "
    "energy_j edp_js device_time_s host_time_s batch_size samples_per_s energy_per_sample_j memory_bytes far_outside "
    "uncovered_share notes"
)
_IN_NO_TOTAL = said(list[str], "Operations and operators that are in no total, and why.")
_of_prediction: Mapping[str, Any] = {"input_shape": Any, "interval": IntervalAnswer | None, "uncovered": _IN_NO_TOTAL}
SummaryAnswer = answer_of("SummaryAnswer", Prediction, "The cost of one iteration.", _SUMMARY, **_of_prediction)


class NodeAnswer(Open):
    """A phase, module or operation with everything below it."""

    name: str
    path: str = Field(description="Qualified name of the module that it is, or that it runs in.")
    level: str = Field(examples=["root", "phase", "module", "operation"])
    phase: str | None = Field(examples=["forward", "backward", "optimizer"])
    calls: float
    time_s: float
    energy_j: float | None = Field(description="Null if unknown; a lower bound if unknown_parts is not 0.")
    components_j: dict[str, float]
    source: str = Field(examples=["measured", "modelled", "missing"])
    unknown_parts: int
    children: list[NodeAnswer]


class TreeAnswer(Open):
    """Where seconds and joules go. The children of a node and its own share add up to its energy."""

    title: str
    root: NodeAnswer


PredictionAnswer = answer_of(
    "PredictionAnswer",
    Prediction,
    "The cost of one iteration, and of each of its operations.",
    _SUMMARY,
    **_of_prediction,
    operations=several(OperationAnswer),
    tree=(TreeAnswer | None, Field(None, description="Left out unless the question asks for it.")),
)

BatchItemAnswer = object_of(
    "BatchItemAnswer",
    "A prediction, or the problem why there is none.",
    prediction=SummaryAnswer | None,
    problem=Problem | None,
)

BatchAnswer = object_of("BatchAnswer", "One result for each request, in their order.", results=several(BatchItemAnswer))


_TOTALS = "time_s power_w energy_j edp_js device_time_s host_time_s held_clock_mhz uncovered_share"
NetworkTotalsAnswer = object_of(
    "NetworkTotalsAnswer",
    "The totals of one of many networks. Values are null where too much of it is not covered.",
    network=str,
    **dict.fromkeys(_TOTALS.split(), float | None),
    problem=said(str, "Why there is no total; empty where there is one."),
)
ManyAnswer = answer_of(
    "ManyAnswer",
    NetworkPredictions,
    "The totals of each network, in the order of the request.",
    "gpu clock_mhz power_limit_w predictor",
    networks=several(NetworkTotalsAnswer),
)

ChoiceAnswer = answer_of(
    "ChoiceAnswer",
    Choice,
    "One GPU at one clock in one precision.",
    f"{WRITTEN.replace(' value ', ' ')} notes uncovered",
    interval=IntervalAnswer | None,
    value=said(float | None, "Value of the objective; the lowest is best."),
)

BestAnswer = object_of(
    "BestAnswer",
    "The best clock of each GPU, precision and batch size, best first.",
    choices=several(ChoiceAnswer),
    left_out=list[dict[str, Any]],
)

SweepAnswer = object_of(
    "SweepAnswer",
    "All clocks of each GPU, precision and batch size.",
    network=str,
    input_shape=Any,
    mode=str,
    objective=str,
    rows=several(ChoiceAnswer),
    left_out=list[dict[str, Any]],
)

SingleOperationAnswer = object_of(
    "SingleOperationAnswer",
    "One operation alone in a loop. Values are null where it is not covered.",
    kind=str,
    input_shapes=list[list[int]],
    time_s=float | None,
    power_w=float | None,
    energy_j=float | None,
    device_time_s=float | None,
    source=str,
)

OperationsAnswer = object_of(
    "OperationsAnswer",
    "One answer for each operation, in the order of the request.",
    operations=several(SingleOperationAnswer),
    static_power_w=float | None,
)

ExplainAnswer = answer_of(
    "ExplainAnswer",
    Explanation,
    "The explanation of an operation's prediction on a GPU.",
    "gpu clock_mhz predictor source bound_by compute_s memory_s far_outside remarks",
    operation=dict[str, Any],
    device_time_s=float | None,
    host_time_s=float | None,
)

NetworkAnswer = object_of(
    "NetworkAnswer",
    "The operations of a network.",
    name=str,
    input_shape=Any,
    mode=str,
    operations=list[dict[str, Any]],
    dropped=list[dict[str, Any]],
)

_ENDS = "Low and high of each quantity."
GenerationIntervalAnswer = answer_of("GenerationIntervalAnswer", GenerationInterval, _ENDS)

GenerationAnswer = answer_of(
    "GenerationAnswer",
    GenerationPrediction,
    "Time, power and energy of a model that writes text for a batch of requests.",
    replicas=said(int, "Copies of the model, which share the batch."),
    latency_s=said(float, "Of a request: first token + (tokens - 1) x time per output token."),
    memory=answer_of("GenerationMemoryAnswer", GenerationMemory, "Bytes of one GPU, by what they hold."),
    interval=GenerationIntervalAnswer | None,
    prefill=said(PredictionAnswer, "On one GPU, a step that reads prompts and nothing else."),
    decode=said(PredictionAnswer, "On one GPU, a step in which the batch decodes and nothing else."),
)

GenerationChoiceAnswer = answer_of(
    "GenerationChoiceAnswer",
    GenerationChoice,
    "One way to serve a model.",
    layout=said(str, "How GPUs share the model, in words, such as TP 4, 2 replicas."),
    command=said(str, "What starts a replica with vLLM."),
)

BestGenerationAnswer = object_of(
    "BestGenerationAnswer",
    "Ways to serve a model within the limits.",
    choices=said(several(GenerationChoiceAnswer), "The best way of each GPU and number of GPUs."),
    pareto=said(several(GenerationChoiceAnswer), "Joules against seconds per token, fastest first."),
    rows=said(several(GenerationChoiceAnswer), "All ways."),
    left_out=said(dict[str, str], "GPU and why it is not among the choices."),
)

ImageAnswer = answer_of(
    "ImageAnswer",
    ImagePrediction,
    "Time, power and energy of images or videos.",
    text=(several(SummaryAnswer), Field(description="The text encoders.")),
    denoise=said(SummaryAnswer, "One step of the denoiser."),
    decode=SummaryAnswer,
    interval=answer_of("ImageIntervalAnswer", ImageInterval, _ENDS),
)

ParallelTrainingAnswer = answer_of(
    "ParallelTrainingAnswer",
    ParallelTraining,
    "Time, power and energy of an iteration of training over several GPUs.",
    power_w=said(float, "Mean power of all boards together."),
    micro=said(SummaryAnswer, "One micro-batch through all layers, or a GPU's part of them."),
)

_Quantiles = object_of(
    "QuantilesAnswer", "Seconds; null if no request has them.", **dict.fromkeys(("p50", "p90", "p99"), float | None)
)

ServingAnswer = answer_of(
    "ServingAnswer",
    ServingSimulation,
    "A simulated engine that serves requests; JSON has no single requests.",
    "model gpu gpus layout engine precision clock_mhz power_limit_w seed rate_per_s concurrency warmup_s duration_s "
    "cache_tokens tokens_per_s requests_per_s energy_j idle_energy_j energy_per_token_j power_w idle_share preemptions "
    "level notes",
    requests=said(int, "Number of requests that were counted."),
    timeline=said(dict[str, list[float | None]], "Power by phase, queue, sequences and memory in 120 equal steps."),
    intervals=said(dict[str, list[float]], "Low and high of each quantity and quantile, if a level was asked for."),
    ttft_s=said(_Quantiles, "Time to first token."),
    tpot_s=said(_Quantiles, "Mean time of a request from one token to the next."),
    itl_s=said(_Quantiles, "From one token to the next, over all tokens."),
    latency_s=said(_Quantiles, "Of whole requests."),
)

RunAnswer = answer_of(
    "RunAnswer",
    Run,
    "A whole training run: time, energy, price and carbon.",
    "model gpu precision samples epochs steps memory_bytes pue notes",
    clock_mhz=float | None,
    input_shape=list[int],
    **{each.name: (str if each.name in ("sharding", "recompute") else int) for each in fields(Layout)},
    replicas=int,
    nodes=int,
    step_s=float,
    time_s=float,
    energy_j=said(float, "Of all boards."),
    wall_energy_j=said(float, "At the plugs of the servers."),
    cost=said(float | None, "In the currency of the prices; null without prices."),
    carbon_kg=float | None,
    samples_per_s=float,
    tokens_per_s=float | None,
    interval=(answer_of("RunIntervalAnswer", RunInterval, "Low and high of each quantity.") | None, ...),
    parts=said(several(answer_of("RunPartAnswer", Part, "A part of a run.", share=float)), "What each part takes."),
)

BestRunAnswer = object_of(
    "BestRunAnswer",
    "Ways to train within the limits.",
    choices=said(several(RunAnswer), "The best way of each GPU and number of GPUs."),
    pareto=said(several(RunAnswer), "Joules at the plug against time, fastest first."),
    left_out=said(dict[str, str], "GPUs with their number, and why they are not among the choices."),
)

_GPU_FIGURES = (
    "name aliases architecture memory_bytes memory_bandwidth min_clock_mhz boost_clock_mhz max_clock_mhz power_limit_w"
)
_ABOUT_GPU: Mapping[str, Any] = {
    "short_name": str,
    "precisions": list[str],
    "measured": said(str | None, "What was measured on it; null if nothing was."),
    "predictors": (
        list[str],
        Field(description="Its own predictors. A GPU without any is predicted from its data sheet."),
    ),
}
GpuSummary = answer_of("GpuSummary", GPU, "A GPU of the catalogue.", _GPU_FIGURES, **_ABOUT_GPU)
GpuAnswer = answer_of(
    "GpuAnswer", GPU, "All figures of a GPU, with their sources.", f"{_GPU_FIGURES} sources", **_ABOUT_GPU
)
HostAnswer = answer_of("HostAnswer", Host, "A host that is known by name.", "name factor source")
GridAnswer = answer_of(
    "GridAnswer", Grid, "The electricity of a country, averaged over a year.", "code name carbon_g_per_kwh"
)

ExecutionAnswer = object_of(
    "ExecutionAnswer",
    "How a network can be run, on which hosts, by which engines, and on which grids.",
    executions=(list[str], Field(examples=[["eager", "graph"]])),
    hosts=several(HostAnswer),
    engines=said(list[str], "Engines that serve language models."),
    grids=several(GridAnswer),
)

GpusAnswer = object_of("GpusAnswer", "The catalogue.", gpus=several(GpuSummary))


class ModelAnswer(Open):
    """A model that has a name."""

    name: str
    family: Literal["image", "tokens", "features"]
    input_shape: list[int] = Field(description="An input shape that it accepts.")
    input_names: list[str]


ModelsAnswer = object_of(
    "ModelsAnswer",
    "Models that need no torch. Other models of torchvision, timm and transformers need it.",
    models=several(ModelAnswer),
    language_models=said(list[str], "Models that /v1/predict_generation knows."),
    pipelines=said(list[str], "Pipelines that /v1/predict_image knows."),
    others=said(bool, "Whether this service can extract models without a template."),
)

ZooAnswer = object_of("ZooAnswer", "Names of the predictors.", entries=list[str])

CalibrationsAnswer = object_of(
    "CalibrationsAnswer",
    "The calibrations that requests may name.",
    calibrations=several(
        object_of("CalibrationAnswer", "A calibration of a board.", name=str, gpu=str, sha256=str, about=str)
    ),
)

_ErrorsAnswer = object_of("ErrorsAnswer", "Bias and mean absolute error over runs, as ratios.", bias=float, error=float)

ScoreboardAnswer = object_of(
    "ScoreboardAnswer",
    "Published runs beside predictions.",
    rows=several(
        object_of(
            "ScoreAnswer",
            "Published runs of a task on a GPU. Times are geometric means over the runs.",
            **dict.fromkeys(("source", "gpu", "task"), str),
            runs=int,
            **dict.fromkeys(("measured_s", "predicted_s"), float | None),
            **dict.fromkeys(("time", "power", "energy"), _ErrorsAnswer | None),
            inside=said(int, "How many measured values lie in their 90 % interval."),
            of=said(int, "Of how many."),
            commit=said(str, "The commit that predicted them."),
        )
    ),
)

CardAnswer = object_of("CardAnswer", "A model card.", name=str)

HealthAnswer = object_of("HealthAnswer", "That the process runs, and its number.", status=str, process=int)

VersionAnswer = object_of(
    "VersionAnswer",
    "The version of joulecast, and the state of the predictors.",
    joulecast=str,
    python=str,
    generation=said(str, "Changes whenever the predictors change."),
)
