"""Reads traces that torch.profiler exported (`export_chrome_trace`), on this machine or on another one."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..regular_files import read_regular
from .trace import MODULE_PREFIX, Naming, Trace, TraceEvent, kind_and_name

_MOST_BYTES = 4 << 30
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_HOST_CATEGORIES = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "privateuse1_runtime"})
_FRAME_PREFIX = "nn.Module: "


def read_chrome_trace(path: str | Path) -> Trace:
    """Read a trace that torch.profiler exported as JSON, with or without gzip compression.

    Args:
        path: Path of the file.

    Raises:
        InputError: The file cannot be read, is not such a trace, or contains no operators.
    """
    path = Path(path)
    data = read_regular(path, _MOST_BYTES, "this trace")
    try:
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise _not_a_trace(path, f"it is not JSON ({error})") from error
    rows = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise _not_a_trace(path, "it has no list of traceEvents")
    try:
        complete = [row for row in rows if row.get("ph") == "X"]
        origin_us = min((float(row["ts"]) for row in complete), default=0.0)
        origin_ns = int(content.get("baseTimeNanoseconds", 0)) + int(origin_us * 1e3)
        names_modules = _named_by(complete)
        events = tuple(
            found for row in complete if (found := _event(row, origin_us, names_modules == "frames")) is not None
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _not_a_trace(path, f"an event lacks a field or has a wrong one ({error!r})") from error
    if not any(event.kind in ("operator", "kernel") for event in events):
        raise _not_a_trace(path, "it contains no operators; profile with ProfilerActivity.CPU, too")
    return Trace(_with_paths(events) if names_modules == "frames" else events, origin_ns, names_modules)


def _not_a_trace(path: Path, reason: str) -> InputError:
    return InputError(
        "this file is not a trace of torch.profiler",
        given=f"{path}: {reason}",
        allowed="a file that profile.export_chrome_trace wrote",
        hint="export the trace again with profile.export_chrome_trace(PATH)",
    )


def _named_by(rows: list[Mapping[str, Any]]) -> Naming:
    names = [str(row.get("name")) for row in rows if row.get("cat") in ("user_annotation", "python_function")]
    if any(name.startswith(MODULE_PREFIX) for name in names):
        return "ranges"
    return "frames" if any(name.startswith(_FRAME_PREFIX) for name in names) else "no"


def _event(row: Mapping[str, Any], origin_us: float, with_frames: bool) -> TraceEvent | None:
    """The event in our form; None for events that are not used."""
    category, name, given = row.get("cat"), str(row["name"]), row.get("args") or {}
    start_s = 1e-6 * (float(row["ts"]) - origin_us)
    times = start_s, start_s + 1e-6 * float(row["dur"])
    if not all(map(math.isfinite, times)):
        raise ValueError(f"the start or end of {name} is not finite")
    lane = (row.get("pid"), row.get("tid"))
    launch = int(given.get("External id") or 0)
    if category in _GPU_CATEGORIES:
        device = int(given.get("device", row.get("pid", 0)))
        return TraceEvent(
            "kernel", name, (device, given.get("stream", row.get("tid"))), *times, f"gpu{device}", launch=launch
        )
    if category == "python_function" and with_frames and name.startswith(_FRAME_PREFIX):
        return TraceEvent("module", name.removeprefix(_FRAME_PREFIX), lane, *times)
    if category not in _HOST_CATEGORIES:
        return None
    found = kind_and_name(name, category == "user_annotation")
    if found is None:
        return None
    # Inside an event of autograd's engine, a second event has the name of the node. Neither of them is an operator that
    # creates a node of the backward pass.
    makes_node = found[0] == "operator" and not given.get("Fwd thread id")
    return TraceEvent(
        *found,
        lane,
        *times,
        sequence=int(given.get("Sequence number", -1)) if makes_node or found[0] == "node" else -1,
        # A file has two different numbers for the thread of a forward pass, so the process is used instead.
        numbering=row.get("pid"),
        # Calls of the CUDA driver have the id of the operator around them, which must stay unique.
        launch=launch if category in ("cpu_op", "user_annotation") else 0,
    )


def _with_paths(events: Iterable[TraceEvent]) -> tuple[TraceEvent, ...]:
    """The events, with modules that are shown by Python frames renamed to include the frames around them."""
    stacks: dict[Hashable, list[TraceEvent]] = {}
    found = []
    for event in sorted(events, key=lambda event: (event.start_s, -event.end_s)):
        if event.kind == "module":
            stack = stacks.setdefault(event.lane, [])
            while stack and stack[-1].end_s <= event.start_s:
                stack.pop()
            event = replace(event, name=f"{stack[-1].name}.{event.name}" if stack else event.name)
            stack.append(event)
        found.append(event)
    return tuple(found)
