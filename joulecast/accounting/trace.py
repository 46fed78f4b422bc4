"""Trace: the events of a profiler, in one form for profiles of this process and for imported files."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["operator", "module", "node", "optimizer", "iteration", "kernel"]
"""Kind of an event: an operator on the host, the call of a module, a node of autograd's backward pass, a step of an
optimizer, a marked iteration, or work on a GPU."""

Naming = Literal["ranges", "frames", "no"]
"""How a trace shows calls of modules: by ranges that joulecast marked, by Python frames of the profiler, or not."""

MODULE_PREFIX = "joulecast.module:"
"""Prefix of the name of a range that marks the call of a module; the module's qualified name follows."""

ITERATION = "joulecast.iteration"
"""Name of the ranges that mark iterations."""

ACCUMULATION = "torch::autograd::AccumulateGrad"
"""The node that adds a gradient to its parameter; it has no sequence number."""

_NODE_PREFIX = "autograd::engine::evaluate_function: "
_OPTIMIZER_PREFIXES = ("Optimizer.step#", "Optimizer.zero_grad#")
_STEP_PREFIX = "ProfilerStep#"
_FUSED_PREFIXES = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "triton_")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event of a trace.

    Args:
        name: Name of the operator, node, optimizer or kernel; qualified name of a module.
        lane: Thread or stream that it ran on.
        start_s: Start in seconds since the trace's origin.
        device: Device that it ran on: "cpu", "gpu0", ...
        sequence: Number of autograd's node: of an operator, the node that it creates; -1 if there is none.
        numbering: Thread of the forward pass. Sequence numbers are unique within it.
        launch: Id of an operator, or of the operator that launched a kernel; 0 if it is not known.
    """

    kind: Kind
    name: str
    lane: Hashable
    start_s: float
    end_s: float
    device: str = "cpu"
    sequence: int = -1
    numbering: Hashable = None
    launch: int = 0


@dataclass(frozen=True)
class Trace:
    """Events of a trace, in any order.

    Args:
        origin_ns: Wall-clock time of second 0, in nanoseconds since 1970.
    """

    events: tuple[TraceEvent, ...]
    origin_ns: int = 0
    names_modules: Naming = "no"


def kind_and_name(name: str, is_annotation: bool) -> tuple[Kind, str] | None:
    """The kind of an event on the host, from its name in torch.profiler, and its name without the profiler's prefix.

    Args:
        is_annotation: Whether it is a range that a program marked (`record_function`), not an operator.

    Returns:
        Kind and name; None for ranges that the user marked, which are not used.
    """
    if name.startswith(MODULE_PREFIX):
        return "module", name.removeprefix(MODULE_PREFIX)
    if name.startswith(_NODE_PREFIX):
        return "node", name.removeprefix(_NODE_PREFIX)
    if name.startswith(_OPTIMIZER_PREFIXES):
        return "optimizer", name.partition("#")[2]
    if name == ITERATION or name.startswith(_STEP_PREFIX):
        return "iteration", name
    return None if is_annotation and not is_fused(name) else ("operator", name)


def is_fused(name: str) -> bool:
    """Whether an operator was made by torch.compile from several others."""
    return name.startswith(_FUSED_PREFIXES)
