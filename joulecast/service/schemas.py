"""Schemas of the answers, for the OpenAPI document. Answers may have further fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Open(BaseModel):
    """An object that may have further fields."""

    model_config = ConfigDict(extra="allow")


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


class IntervalAnswer(Open):
    """Low and high of each quantity."""

    level: float
    time_s: list[float]
    power_w: list[float]
    energy_j: list[float]
    edp_js: list[float]


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


class SummaryAnswer(Open):
    """The cost of one iteration."""

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
    batch_size: int | None
    samples_per_s: float | None
    energy_per_sample_j: float | None
    memory_bytes: int | None
    interval: IntervalAnswer | None
    uncovered: list[str] = Field(description="Operations and operators that are in no total, and why.")
    uncovered_share: float | None = Field(
        description="Their share of the network's FLOPs or bytes, whichever is larger; null if it is not known."
    )
    notes: list[str]


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


class PredictionAnswer(SummaryAnswer):
    """The cost of one iteration, and of each of its operations."""

    operations: list[OperationAnswer]
    tree: TreeAnswer | None = Field(None, description="Left out unless the question asks for it.")


class BatchItemAnswer(Open):
    """A prediction, or the problem why there is none."""

    prediction: SummaryAnswer | None
    problem: Problem | None


class BatchAnswer(Open):
    """One result for each request, in their order."""

    results: list[BatchItemAnswer]


class NetworkTotalsAnswer(Open):
    """The totals of one of many networks. Values are null where too much of it is not covered."""

    network: str
    time_s: float | None
    power_w: float | None
    energy_j: float | None
    edp_js: float | None
    device_time_s: float | None
    host_time_s: float | None
    held_clock_mhz: float | None
    uncovered_share: float | None
    problem: str = Field(description="Why there is no total; empty where there is one.")


class ManyAnswer(Open):
    """The totals of each network, in the order of the request."""

    gpu: str
    clock_mhz: float
    power_limit_w: float
    predictor: str
    networks: list[NetworkTotalsAnswer]


class ChoiceAnswer(Open):
    """One GPU at one clock in one precision."""

    gpu: str
    alias: str
    clock_mhz: float
    held_clock_mhz: float = Field(description="Lower than clock_mhz where the power cap makes the GPU slow down.")
    precision: str
    mode: str
    batch_size: int | None
    time_s: float
    power_w: float
    energy_j: float
    edp_js: float
    interval: IntervalAnswer | None
    objective: str
    value: float | None = Field(description="Value of the objective; the lowest is best.")
    tied: bool = Field(
        description="Whether this cannot be told from the best choice: its value lies within the interval of the best."
    )
    memory_bytes: int
    predictor: str
    measured: bool = Field(description="Whether anything was measured on this GPU.")
    notes: list[str]
    uncovered: list[str] = Field(description="Operations and operators that are in no total, and why.")
    uncovered_share: float | None = Field(
        description="Their share of the job's FLOPs or bytes; null if it is not known."
    )


class BestAnswer(Open):
    """The best clock of each GPU, precision and batch size, best first."""

    choices: list[ChoiceAnswer]
    left_out: list[dict[str, Any]]


class SweepAnswer(Open):
    """All clocks of each GPU, precision and batch size."""

    network: str
    input_shape: Any
    mode: str
    objective: str
    rows: list[ChoiceAnswer]
    left_out: list[dict[str, Any]]


class SingleOperationAnswer(Open):
    """One operation alone in a loop. Values are null where it is not covered."""

    kind: str
    input_shapes: list[list[int]]
    time_s: float | None
    power_w: float | None
    energy_j: float | None
    device_time_s: float | None
    source: str


class OperationsAnswer(Open):
    """One answer for each operation, in the order of the request."""

    operations: list[SingleOperationAnswer]
    static_power_w: float | None


class ExplainAnswer(Open):
    """The explanation of an operation's prediction on a GPU."""

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


class NetworkAnswer(Open):
    """The operations of a network."""

    name: str
    input_shape: Any
    mode: str
    operations: list[dict[str, Any]]
    dropped: list[dict[str, Any]]
