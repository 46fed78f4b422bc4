"""From a trace to events: which module, phase and operator each moment of a device belongs to.

On the host, calls of modules, nodes of autograd, steps of an optimizer and operators are nested by time. An operator
belongs to the innermost of these around it; operators that another operator calls are part of it. A node of the
backward belongs to the module whose operator created it: both have the same sequence number. AccumulateGrad has none,
and runs right after the node that computed its gradient. A kernel belongs to the operator that launched it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from ..energy.node import Phase
from .events import CPU, Events, Place, innermost

# Trace: the events of a profiler.

Kind = Literal["operator", "module", "node", "optimizer", "iteration", "kernel"]
"""Kind of an event: an operator on the host, the call of a module, a node of autograd's backward pass, a step of an
optimizer, a marked iteration, or work on a GPU."""

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


@dataclass
class Trace:
    """Events of a trace, in any order.

    Args:
        origin_ns: Wall-clock time of second 0, in nanoseconds since 1970.
    """

    events: tuple[TraceEvent, ...] = ()
    origin_ns: int = 0


def kind_and_name(name: str, is_annotation: bool) -> tuple[Kind, str] | None:
    """The kind of an event on the host, from its name in torch.profiler, and its name without the profiler's prefix.

    Returns kind and name; None for ranges that the user marked, which are not used.

    Args:
        is_annotation: Whether it is a range that a program marked (`record_function`), not an operator.
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


_LEAST_MODULE_SHARE = 0.99


@dataclass(slots=True)
class _Frame:
    """Module, phase and operator of everything that runs inside an open event.

    Args:
        path: Path of the module; None outside the model.
        operation: Operator or node around; None if there is none inside the innermost module.
    """

    end_s: float
    path: str | None
    phase: Phase
    operation: str | None


@dataclass(slots=True)
class _Found:
    """Results that are collected while reading a trace."""

    rows: list[tuple[float, float, Place, Hashable]] = field(default_factory=list)
    """Outermost operators and nodes of the host: start, end, place and thread."""
    by_launch: dict[int, Place] = field(default_factory=dict)
    by_sequence: dict[tuple[Hashable, int], str | None] = field(default_factory=dict)
    last_node: dict[Hashable, str | None] = field(default_factory=dict)
    windows: list[tuple[float, float]] = field(default_factory=list)
    root_calls: list[tuple[float, float]] = field(default_factory=list)


def attributed(trace: Trace) -> Events:
    """Assign each moment of each device to a module, phase and operator.

    Time of the host in which no operator runs is part of no event, because Python code between operators belongs to no
    module.
    """
    found = _Found()
    stacks: dict[Hashable, list[_Frame]] = {}
    host = [event for event in trace.events if event.kind != "kernel"]
    # A forward starts before its backward, possibly on another thread, so the events of all threads are read in order.
    for event in sorted(host, key=lambda event: (event.start_s, -event.end_s)):
        stack = stacks.setdefault(event.lane, [])
        while stack and stack[-1].end_s <= event.start_s:
            stack.pop()
        _enter(event, stack, found)
    rows = []
    if found.rows:
        starts, ends, _, threads = zip(*found.rows, strict=True)
        lanes = {thread: i for i, thread in enumerate(dict.fromkeys(threads))}
        pieces = innermost(np.array(starts), np.array(ends), np.array([lanes[thread] for thread in threads]))
        for start_s, end_s, row in zip(*(column.tolist() for column in pieces), strict=True):
            rows.append((start_s, end_s, found.rows[row][2], CPU))
    for event in trace.events:
        if event.kind == "kernel":
            place = found.by_launch.get(event.launch, Place(None, "forward", ""))
            # Kernels that no operator launches, such as Triton's, name themselves.
            named = place if place.operation else place._replace(operation=event.name)
            rows.append((event.start_s, event.end_s, named, event.device))
    # Without marked iterations, each forward of the whole model begins an iteration.
    windows = sorted(found.windows) or _from_calls(found.root_calls, rows)
    events = Events.of(rows, origin_ns=trace.origin_ns, windows=windows)
    return replace(events, notes=(*_module_notes(events), *_graph_notes(found, windows)))


def module_share(events: Events, phase: Phase | None = None) -> float | None:
    """Share of the time of events that belongs to a module, in one phase or in all; None without such events."""
    length_s = events.end_s - events.start_s
    wanted = np.array([phase in (None, place.phase) for place in events.places], dtype=bool)
    within = np.array([place.path is not None for place in events.places], dtype=bool)
    if not len(events) or not wanted.any():
        return None
    total_s = float(length_s[wanted[events.place]].sum())
    return float(length_s[(wanted & within)[events.place]].sum()) / total_s if total_s else None


def _enter(event: TraceEvent, stack: list[_Frame], found: _Found) -> None:
    """Process an event and push it onto the stack of open events."""
    if event.kind == "iteration":
        found.windows.append((event.start_s, event.end_s))
        return
    outer = stack[-1] if stack else _Frame(event.end_s, None, "forward", None)
    if event.kind == "module":
        frame = _Frame(event.end_s, event.name, outer.phase, None)
    elif event.kind == "optimizer":
        frame = _Frame(event.end_s, "", "optimizer", None)
    elif event.kind == "node":
        path = found.by_sequence.get((event.numbering, event.sequence))
        if event.name == ACCUMULATION:
            path = found.last_node.get(event.lane)
        found.last_node[event.lane] = path
        frame = _Frame(event.end_s, path, "backward", event.name.removeprefix("torch::autograd::"))
    else:
        frame = _Frame(event.end_s, outer.path, outer.phase, outer.operation or event.name)
    stack.append(frame)
    place = Place(frame.path, frame.phase, frame.operation or "")
    if event.launch:
        found.by_launch[event.launch] = place
    if event.kind == "module" and event.name == "" and outer.phase == "forward":
        found.root_calls.append((event.start_s, event.end_s))
    if event.kind == "operator" and event.sequence >= 0:
        # Of several operators with a number the one that starts last makes the node: it is the innermost.
        found.by_sequence[event.numbering, event.sequence] = frame.path
    if event.kind == "node" or (event.kind == "operator" and outer.operation is None):
        found.rows.append((event.start_s, event.end_s, place, event.lane))


def _from_calls(
    calls: Sequence[tuple[float, float]], rows: Sequence[tuple[float, float, Place, str]]
) -> list[tuple[float, float]]:
    """Iterations from one forward of the model to the next, with everything that ran before and after."""
    if not calls or not rows:
        return []
    starts = sorted(start for start, _ in calls)
    starts[0] = min(starts[0], *(start for start, _, _, _ in rows))
    return list(pairwise([*starts, max(end for _, end, _, _ in rows)]))


def _module_notes(events: Events) -> list[str]:
    notes = []
    share = module_share(events)
    if share is not None and share < _LEAST_MODULE_SHARE:
        notes.append(
            f"{100 * share:.1f} % of the time of operators belongs to a module; the rest ran outside the model"
        )
    compiled = {place.operation for place in events.places if is_fused(place.operation)}
    if compiled:
        notes.append(
            f"{len(compiled)} operations are fused kernels of torch.compile, such as {min(compiled)}: what is fused "
            "belongs to the compiled module as a whole"
        )
    return notes


def _graph_notes(found: _Found, windows: Sequence[tuple[float, float]]) -> list[str]:
    """A note where iterations did not run the same operators in the model."""
    if len(windows) < 2:
        return []
    counts: list[Counter[Place]] = [Counter() for _ in windows]
    starts = [start_s for start_s, _ in windows]
    for start_s, _, place, _ in found.rows:
        if place.path is not None and start_s >= starts[0]:
            counts[bisect_right(starts, start_s) - 1][place] += 1
    differing = sum(count != counts[0] for count in counts[1:])
    if not differing:
        return []
    return [
        f"the model changes from iteration to iteration ({differing} of {len(counts)} differ from the first): "
        "what is accounted is the mean over them"
    ]
