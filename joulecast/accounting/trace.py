"""Trace: what a profiler wrote down, in one form for a profile of this process and for a trace that was imported."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["operator", "module", "node", "optimizer", "iteration", "kernel"]
"""Of what an event tells: an operator on the host, the call of a module, a node of autograd's backward, a step of an
optimizer, an iteration that was marked, or work on a GPU."""

Naming = Literal["ranges", "frames", "no"]
"""How calls of modules are known: by ranges of joulecast, by Python frames of the profiler, or not."""

MODULE_PREFIX = "joulecast.module:"
"""Beginning of the names of ranges that stand for calls of a module; its qualified name follows."""

ITERATION = "joulecast.iteration"
"""Name of the ranges that stand for iterations."""

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
        kind: What it tells of.
        name: The operator, node, optimizer or kernel; of a module its qualified name.
        lane: The thread or stream that it ran on.
        start_s: When it started, in seconds since the trace's origin.
        end_s: When it ended.
        device: "cpu", "gpu0", ...
        sequence: Number of the node of autograd that an operator makes, or that this is; -1 where there is none.
        numbering: What sequence numbers are counted within: the thread of the forward.
        launch: Identifies an operator; a kernel has that of the operator that launched it. 0 where it is not known.
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
        events: What was written down.
        origin_ns: Wall-clock time of second 0, in nanoseconds since 1970.
        names_modules: How calls of modules are known.
    """

    events: tuple[TraceEvent, ...]
    origin_ns: int = 0
    names_modules: Naming = "no"


def kind_and_name(name: str, is_annotation: bool) -> tuple[Kind, str] | None:
    """What an event of the host tells of, by its name in torch.profiler, and the name without what says so.

    Args:
        name: As the profiler wrote it.
        is_annotation: Whether it is a range that a program marked (`record_function`), not an operator.

    Returns:
        None for ranges of the user's own, which say nothing about operators.
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
    """Whether an operator is what torch.compile made of many."""
    return name.startswith(_FUSED_PREFIXES)
