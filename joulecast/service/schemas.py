"""What is answered, for the OpenAPI document. Answers may hold more than is listed here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Problem(_Open):
    """What was refused, and why (RFC 9457), with the texts of the library."""

    type: str = Field(examples=["urn:joulecast:problem:unknown-name"])
    title: str = Field(description="What is wrong.", examples=["unknown GPU"])
    status: int = Field(examples=[422])
    detail: str = Field(description="All parts together.")
    given: str | None = Field(description="What was given.", examples=["'A31'"])
    allowed: str | None = Field(description="What is allowed.")
    hint: str | None = Field(description="What to do next.", examples=["did you mean A30?"])
    instance: str | None = Field(None, description="The request, as the log names it.")


class IntervalAnswer(_Open):
    """Low and high of each quantity."""

    level: float
    time_s: list[float]
    power_w: list[float]
    energy_j: list[float]
    edp_js: list[float]


class OperationAnswer(_Open):
    """One operation of a network, all its calls together; null where missing."""

    kind: str
    input_shapes: list[list[int]]
    attributes: dict[str, Any]
    precision: str
    mode: str
    count: int
    module_paths: list[str]
    module_counts: list[int] = Field(
        [], description="Calls in each of these modules; left out where it is one in each."
    )
    device_time_s: float | None
    power_w: float | None
    energy_j: float | None
    source: str = Field(examples=["measured", "modelled", "missing"])
    bound_by: str = Field(examples=["compute", "memory", "launch"])


class SummaryAnswer(_Open):
    """What one iteration costs."""

    network: str
    input_shape: Any
    mode: str
    gpu: str
    clock_mhz: float
    held_clock_mhz: float
    power_limit_w: float
    predictor: str
    composition: str
    execution: str
    host: str
    time_s: float
    power_w: float
    energy_j: float
    edp_js: float
    device_time_s: float
    host_time_s: float
    interval: IntervalAnswer | None
    uncovered: list[str] = Field(description="Operations and operators that are in no total, and why.")
    uncovered_share: float | None = Field(
        description="Share of the network's FLOPs or bytes, whichever is larger, in them; null if nobody knows."
    )
    notes: list[str]


class PredictionAnswer(SummaryAnswer):
    """What one iteration costs, and which operations cost it."""

    operations: list[OperationAnswer]


class BatchItemAnswer(_Open):
    """A prediction, or why there is none."""

    prediction: SummaryAnswer | None
    problem: Problem | None


class BatchAnswer(_Open):
    """As many results as requests, in their order."""

    results: list[BatchItemAnswer]


class ChoiceAnswer(_Open):
    """One GPU at one clock in one precision."""

    gpu: str
    alias: str
    clock_mhz: float
    held_clock_mhz: float = Field(description="Less than clock_mhz where the power cap bites.")
    precision: str
    mode: str
    batch_size: int | None
    time_s: float
    power_w: float
    energy_j: float
    edp_js: float
    interval: IntervalAnswer | None
    objective: str
    value: float | None = Field(description="Of the objective; the least is best.")
    tied: bool = Field(description="Not the best, but within the interval of the best.")
    memory_bytes: int
    predictor: str
    measured: bool = Field(description="False: nothing was ever measured on this GPU.")
    notes: list[str]
    uncovered: list[str] = Field(description="Operations and operators that are in no total, and why.")
    uncovered_share: float | None = Field(description="Share of the job in them; null if nobody knows.")


class BestAnswer(_Open):
    """The best clock of each GPU, precision and batch size, best first."""

    choices: list[ChoiceAnswer]
    left_out: list[dict[str, Any]]


class SweepAnswer(_Open):
    """All clocks of each GPU, precision and batch size."""

    network: str
    input_shape: Any
    mode: str
    objective: str
    rows: list[ChoiceAnswer]
    left_out: list[dict[str, Any]]


class SingleOperationAnswer(_Open):
    """One operation alone in a loop; null where it is not covered."""

    kind: str
    input_shapes: list[list[int]]
    time_s: float | None
    power_w: float | None
    energy_j: float | None
    device_time_s: float | None
    source: str


class OperationsAnswer(_Open):
    """As many as were asked for, in their order."""

    operations: list[SingleOperationAnswer]
    static_power_w: float | None


class ExplainAnswer(_Open):
    """Why an operation costs what it costs on a GPU."""

    operation: dict[str, Any]
    gpu: str
    clock_mhz: float
    predictor: str
    source: str
    bound_by: str = Field(examples=["compute", "memory", "launch"])
    compute_s: float = Field(description="Least time of its arithmetic by the data sheet.")
    memory_s: float = Field(description="Least time of its memory traffic by the data sheet.")
    device_time_s: float | None
    host_time_s: float | None


class NetworkAnswer(_Open):
    """The operations of a network."""

    name: str
    input_shape: Any
    mode: str
    operations: list[dict[str, Any]]
    dropped: list[dict[str, Any]]


class GpuSummary(_Open):
    """A GPU of the catalogue."""

    name: str
    short_name: str
    aliases: list[str]
    architecture: str
    memory_bytes: int
    memory_bandwidth: float
    min_clock_mhz: float
    boost_clock_mhz: float
    max_clock_mhz: float
    power_limit_w: float
    precisions: list[str]
    measured: str | None = Field(description="What was measured on it; null: nothing ever was.")
    predictors: list[str] = Field(description="Its own; others are predicted from data sheets.")


class GpusAnswer(_Open):
    """The catalogue."""

    gpus: list[GpuSummary]


class GpuAnswer(GpuSummary):
    """All figures of a GPU, with their sources."""

    sources: list[str]


class ModelAnswer(_Open):
    """A model that is known by name."""

    name: str
    family: Literal["image", "tokens", "features"]
    input_shape: list[int] = Field(description="One that it runs on.")
    input_names: list[str]


class ModelsAnswer(_Open):
    """Models that are answered without torch. Others of torchvision, timm and transformers need it."""

    models: list[ModelAnswer]
    others: bool = Field(description="Whether models without a template can be looked into here.")


class ZooAnswer(_Open):
    """Names of the predictors."""

    entries: list[str]


class CardAnswer(_Open):
    """A model card."""

    name: str


class HealthAnswer(_Open):
    """Alive."""

    status: str


class VersionAnswer(_Open):
    """What runs."""

    joulecast: str
    python: str
    generation: str = Field(description="Changes whenever the predictors do.")
