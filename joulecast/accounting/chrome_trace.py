"""Reads traces that torch.profiler exported (`export_chrome_trace`), on this machine or on another one.

Events are read one by one, and only what is used of them is kept, so that memory does not grow with what a file
contains beside them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..checked import integer, number, shown, text
from ..energy.node import require_levels
from ..errors import InputError
from ..system.json_items import JsonItems
from ..system.regular_files import pieces, too_large
from .attribution import Naming, Trace, TraceEvent, kind_and_name

_MOST_BYTES = 4 << 30  # unpacked
_MOST_EVENTS = 1_000_000
_MOST_TEXT = 64 << 20  # characters of all different names
_MOST_NAME = 1 << 16  # characters; templates of kernels take thousands
_MOST_US = 1e18  # 30,000 years
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_HOST_CATEGORIES = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "privateuse1_runtime"})
_USED_CATEGORIES = _GPU_CATEGORIES | _HOST_CATEGORIES | {"python_function"}
_FRAME_PREFIX = "nn.Module: "


def read_chrome_trace(path: str | Path) -> Trace:
    """Read a trace that torch.profiler exported as JSON, with or without gzip compression.

    Raises InputError: the file cannot be read, is not such a trace, contains no operators, or has more than a million
    events or 4 GB.
    """
    path = Path(path)
    items, found = JsonItems(pieces(path, _MOST_BYTES, "this trace"), "traceEvents"), _Reading(path)
    try:
        for row in items:
            if not isinstance(row, dict):
                raise TypeError(f"an event is an object, not {shown(row)}")
            if row.get("ph") == "X":
                found.add(row)
        if not items.found:
            raise ValueError("it has no list of traceEvents")
        base_ns = _whole(items.others.get("baseTimeNanoseconds", 0))
        origin_ns = base_ns + int((found.origin_us or 0.0) * 1e3)
        if found.names_modules == "frames":
            found.name_frames()
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_a_trace(path, f"{type(error).__name__}: {error}"[:300]) from error
    if not any(event.kind in ("operator", "kernel") for event in found.events):
        raise _not_a_trace(path, "it contains no operators; profile with ProfilerActivity.CPU, too")
    return Trace(tuple(found.events), origin_ns, found.names_modules)


def _not_a_trace(path: Path, reason: str) -> InputError:
    return InputError(
        "this file is not a trace of torch.profiler",
        given=f"{path}: {reason}",
        allowed="a file that profile.export_chrome_trace wrote",
        hint="export the trace again with profile.export_chrome_trace(PATH)",
    )


@dataclass
class _Reading:
    """What has been read of a trace."""

    path: Path
    events: list[TraceEvent] = field(default_factory=list)
    frames: list[TraceEvent] = field(default_factory=list)
    """Calls of modules by the profiler's Python frames, which count only where no ranges mark the modules."""
    origin_us: float | None = None
    """Start of the first event, to which all times are relative."""
    has_ranges: bool = False
    _names: dict[str, str] = field(default_factory=dict)
    _lanes: dict[Hashable, Hashable] = field(default_factory=dict)
    _text: int = 0

    @property
    def names_modules(self) -> Naming:
        return "ranges" if self.has_ranges else "frames" if self.frames else "no"

    def add(self, row: Mapping[str, Any]) -> None:
        """Add an event, if it is of those that are used.

        Raises KeyError, TypeError, ValueError: a field of it is missing or wrong. Raises InputError: there are too many
        events.
        """
        start_us, category = number(row["ts"], -_MOST_US, _MOST_US), row.get("cat")
        if self.origin_us is None:
            self.origin_us = start_us
        if not isinstance(category, str) or category not in _USED_CATEGORIES:
            return
        name, given = text(row["name"], _MOST_NAME), row.get("args") or {}
        if not isinstance(given, dict):
            raise TypeError(f"the args of an event are an object, not {shown(given)}")
        if category == "python_function" and (self.has_ranges or not name.startswith(_FRAME_PREFIX)):
            return
        start_s = 1e-6 * (start_us - self.origin_us)
        times = start_s, start_s + 1e-6 * number(row["dur"], -_MOST_US, _MOST_US)
        event = self._event(row, category, name, given, times)
        if event is not None:
            (self.frames if category == "python_function" else self.events).append(event)
        if len(self.events) + len(self.frames) > _MOST_EVENTS:
            hint = "profile fewer iterations: torch.profiler.schedule(wait=1, warmup=1, active=3)"
            raise too_large("this trace", self.path, f"up to {_MOST_EVENTS:,} events", hint)

    def _event(
        self, row: Mapping[str, Any], category: str, name: str, given: Mapping[str, Any], times: tuple[float, float]
    ) -> TraceEvent | None:
        """The event in our form; None for ranges that the user marked."""
        process, launch = _id(row.get("pid")), _whole(given.get("External id") or 0)
        lane = self._lane((process, _id(row.get("tid"))))
        if category in _GPU_CATEGORIES:
            device = _whole(given.get("device", process))
            lane = self._lane((device, _id(given.get("stream", row.get("tid")))))
            return TraceEvent("kernel", self._name(name), lane, *times, self._name(f"gpu{device}"), launch=launch)
        if category == "python_function":
            return TraceEvent("module", self._name(name.removeprefix(_FRAME_PREFIX)), lane, *times)
        found = kind_and_name(name, category == "user_annotation")
        if found is None:
            return None
        kind = found[0]
        if kind == "module":
            self.has_ranges |= category == "user_annotation"
            require_levels(found[1])
        # Inside an event of autograd's engine, a second event has the name of the node. Neither of them is an operator
        # that creates a node of the backward pass.
        makes_node = kind == "operator" and not given.get("Fwd thread id")
        return TraceEvent(
            kind,
            self._name(found[1]),
            lane,
            *times,
            sequence=_whole(given.get("Sequence number", -1)) if makes_node or kind == "node" else -1,
            # A file has two different numbers for the thread of a forward pass, so the process is used instead.
            numbering=process,
            # Calls of the CUDA driver have the id of the operator around them, which must stay unique.
            launch=launch if category in ("cpu_op", "user_annotation") else 0,
        )

    def _name(self, name: str) -> str:
        """The same object for the same name, because most events share their names."""
        if name not in self._names:
            self._text += len(name)
            if self._text > _MOST_TEXT:
                raise too_large("the text in this trace", self.path, f"names with up to {_MOST_TEXT:,} characters")
            self._names[name] = name
        return self._names[name]

    def _lane(self, lane: Hashable) -> Hashable:
        return self._lanes.setdefault(lane, lane)

    def name_frames(self) -> None:
        """Rename modules that are shown by Python frames to include the frames around them, and add them."""
        stacks: dict[Hashable, list[TraceEvent]] = {}
        for event in sorted(self.frames, key=lambda event: (event.start_s, -event.end_s)):
            stack = stacks.setdefault(event.lane, [])
            while stack and stack[-1].end_s <= event.start_s:
                stack.pop()
            if stack:
                name = f"{stack[-1].name}.{event.name}"
                require_levels(name)
                event = replace(event, name=self._name(name))
            stack.append(event)
            self.events.append(event)


def _id(value: Any) -> int | float | str | None:
    """The id of a process, thread or stream, which may be a text.

    Raises TypeError, ValueError: it is anything else, or too large.
    """
    if value is None:
        return None
    return text(value, 200) if isinstance(value, str) else number(value)


def _whole(value: Any) -> int:
    """An integer from -1, possibly as text. Raises TypeError, ValueError: it is anything else."""
    return integer(int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value, -1)
