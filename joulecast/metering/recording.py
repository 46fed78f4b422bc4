"""Recordings: the readings of one machine's sensors as lines of JSON, which survive if the meter is killed.

The first line describes the machine and its devices. Blocks of samples, windows of the program and events follow, and a
last line if the meter ended normally. Every line has a checksum and is synced to disk, so a kill loses at most the
block that was being written. A last line that is incomplete is ignored when the file is read.

    {"kind": "machine", "format": 1, "host": ..., "devices": [...], "crc32": "0123abcd"}
    {"kind": "samples", "device": "gpu0", "columns": {"time_s": [...], "power_w": [...]}, "crc32": ...}
    {"kind": "windows", "windows": [["epoch.step", 12.5, 12.9], ...], "crc32": ...}
    {"kind": "event", "time_s": 13.0, "device": "gpu0", "what": "lost: ...", "crc32": ...}
    {"kind": "end", "time_s": 14.2, "exit_code": 0, "crc32": ...}
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..checked import integer, number, shown, text
from ..energy.node import require_levels
from ..errors import InputError
from ..system.regular_files import first_line, lines, loaded_json
from ..system.whole_files import append_whole
from .samples import FIELDS, RANGES, Samples

FORMAT = 1
_SEAL = re.compile(r',"crc32":"([0-9a-f]{8})"\}\s*$')
LONGEST_NAME = 1000
"""Characters of the longest name in a recording."""

_KINDS = ("machine", "samples", "windows", "event", "shares", "end")

Window = tuple[str, float, float]
"""Path of a window, such as "epoch.step", and the monotonic times at which it opened and closed."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device of a machine, or a part of a device, whose power or energy is read.

    Args:
        name: Name that is unique on the machine, such as "gpu0", "cpu0" or "cpu0.core".
        component: The part of the device that is read: "board", "package", "dram", ...
        counted: Whether its energy is added to the machine's; False for a part that another device contains.
        method: "measured", or "modelled" if a formula takes the place of a sensor.
        idle_w: Power without any load in watts; None if it is not known.
    """

    name: str
    component: str
    counted: bool = True
    method: str = "measured"
    idle_w: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read a device that was written as a dictionary of its fields.

        Raises AttributeError, KeyError, TypeError, ValueError: the content is not that.
        """
        if value["method"] not in ("measured", "modelled") or type(value["counted"]) is not bool:
            raise ValueError('a device needs a method of "measured" or "modelled", and true or false for "counted"')
        name, component = text(value["name"], LONGEST_NAME), text(value["component"], LONGEST_NAME)
        idle_w = None if value["idle_w"] is None else number(value["idle_w"], *RANGES["power_w"])
        facts = {text(key, LONGEST_NAME): fact for key, fact in value["facts"].items()}
        return cls(name, component, value["counted"], value["method"], idle_w, facts)


@dataclass(frozen=True)
class Recording:
    """The content of a recording.

    Args:
        started: Wall-clock time of the first line, ISO 8601 with the offset from UTC.
        shares: The program's shares of CPU and GPUs over time, in the form of their lines.
        absent: Sensors that cannot be read: why, and what would allow it.
        exit_code: Exit code of the measured command; None if no command was measured or it did not end.
        complete: Whether the recording has its last line, so the meter was not killed.
        wall_offset_s: Seconds to add to monotonic times to get wall-clock times.
    """

    host: str
    started: str
    start_s: float
    end_s: float
    devices: tuple[DeviceInfo, ...]
    samples: Mapping[str, Samples]
    windows: tuple[Window, ...] = ()
    events: tuple[str, ...] = ()
    shares: tuple[Mapping[str, Any], ...] = ()
    absent: tuple[str, ...] = ()
    exit_code: int | None = None
    complete: bool = True
    wall_offset_s: float = 0.0


class Writer:
    """Appends lines to a new recording. Raises InputError: the file exists already, or cannot be created."""

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            raise InputError(
                f"the recording cannot be created: {error.strerror}",
                given=str(path),
                allowed="a new file",
                hint="give --out the path of a file that does not exist yet",
            ) from error
        self.write({"kind": "machine", "format": FORMAT, **machine})

    def write(self, *records: Mapping[str, Any]) -> None:
        """Append records, and return when they are on disk.

        Raises InputError: writing failed, such as on a full disk. Then none of the records is in the recording.
        """
        try:
            append_whole(self._file, "".join(map(sealed, records)).encode())
        except OSError as error:
            raise InputError(
                f"the recording cannot be written: {error.strerror}",
                given=str(self._path),
                hint="free space on the disk; the samples are held in memory and will be written then",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def sealed(record: Mapping[str, Any]) -> str:
    """A record as a line of JSON that ends with a checksum of all that precedes it."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)[:-1]
    return f'{text},"crc32":"{zlib.crc32(text.encode()):08x}"}}\n'


def unsealed(line: str) -> dict[str, Any] | None:
    """The record of a line; None if the line is incomplete or does not match its checksum.

    Raises ValueError, RecursionError: the checksum is right, but the line is no record that a meter writes.
    """
    found = _SEAL.search(line)
    if found is None or int(found[1], 16) != zlib.crc32(line[: found.start()].encode()):
        return None
    record = loaded_json(line)
    if not isinstance(record, dict) or record.get("kind") not in _KINDS:
        raise ValueError(f"it is not one of {', '.join(_KINDS)}")
    return record


def block_of(device: str, samples: Samples) -> dict[str, Any]:
    """The record of a block of samples.

    Readings without any value are left out, and single missing values are null.
    """
    columns = {name: getattr(samples, name) for name in FIELDS}
    return {
        "kind": "samples",
        "device": device,
        "columns": {
            name: [None if math.isnan(value) else value for value in values.tolist()]
            for name, values in columns.items()
            if not np.isnan(values).all()
        },
    }


# Reading recordings: of any size up to a limit, and line by line, whoever wrote them and however they ended.

_MOST_BYTES = 1 << 30  # about ten million samples
_LONGEST_LINE = 16 << 20
_MOST_RECORDS = 2_000_000
_WRITTEN = "a file that `joulecast measure --out` wrote"


def read_recording(path: str | Path) -> Recording:
    """Read a recording, even if its program or its meter was killed.

    Raises InputError: the file does not exist or is empty, is not a recording, has another format, is damaged before
    its last line, contains values that no sensor reads, or is larger than 1 GB.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such recording", given=str(path), hint="`joulecast measure --out FILE` makes one")
    reading, torn_lines = _Reading(), 0
    try:
        for line in lines(path, _MOST_BYTES, _LONGEST_LINE, "this recording"):
            if torn_lines:
                torn_lines += 1
                break
            record = unsealed(line.decode("utf-8", errors="replace"))
            if record is None:
                torn_lines = 1
            else:
                reading.add(record)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError) and str(path) in str(error.given):
            raise
        raise InputError(
            "the content of this recording is not valid",
            given=f"{path}, line {reading.count + 1}: {type(error).__name__}: {first_line(error)}",
            allowed=_WRITTEN,
            hint="use a copy that is intact",
        ) from error
    # Only the last line may be incomplete: the one that was being written when the meter was killed.
    if torn_lines > 1:
        raise InputError(
            "a line of this recording is damaged",
            given=f"{path}, line {reading.count + 1}",
            hint="use a copy that is intact",
        )
    if not reading.count:
        raise InputError("this is not a recording", given=str(path), allowed=_WRITTEN)
    return reading.finished()


class _Reading:
    """What has been read of a recording, line by line."""

    def __init__(self) -> None:
        self.count = 0
        self._found: dict[str, Any] = {}  # fields of the recording
        self._blocks: dict[str, list[Samples]] = {}
        self._lists: dict[str, list[Any]] = {"windows": [], "events": [], "shares": []}
        self._names: dict[str, str] = {}
        self._last_window_s = -math.inf

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the record of a line.

        Raises InputError, KeyError, IndexError, TypeError, ValueError, AttributeError: it is not one that a meter
        writes.
        """
        if (record["kind"] == "machine") != (self.count == 0):
            given = f"a line of the kind {record['kind']} in line {self.count + 1}"
            raise InputError("this is not a recording", given=given, allowed=_WRITTEN)
        getattr(self, f"_add_{record['kind']}")(record)
        for what, values in self._lists.items():
            if len(values) > _MOST_RECORDS:
                raise ValueError(f"it has more than {_MOST_RECORDS:,} {what}")
        self.count += 1

    def _ends(self, *times_s: float) -> None:
        self._found["end_s"] = max(self._found["end_s"], *times_s)

    def _add_machine(self, record: Mapping[str, Any]) -> None:
        if record.get("format") != FORMAT:
            raise InputError(
                "the recording has another format",
                given=f"format {shown(record.get('format'))}",
                allowed=f"format {FORMAT}",
                hint="read it with the version of joulecast that wrote it",
            )
        start_s = _time(record["start_s"])
        self._found = {
            "start_s": start_s,
            "end_s": start_s,
            "host": text(record["host"], LONGEST_NAME),
            "started": text(record["started"], LONGEST_NAME),
            "absent": tuple(text(value) for value in _listed(record["absent"])),
            "wall_offset_s": _time(record["wall_offset_s"]),
            "devices": tuple(DeviceInfo.from_dict(value) for value in _listed(record["devices"])),
            "complete": False,
        }
        self._blocks = {device.name: [] for device in self._found["devices"]}
        if len(self._blocks) < len(self._found["devices"]):
            raise ValueError("two devices have the same name")

    def _add_samples(self, record: Mapping[str, Any]) -> None:
        columns = {name: _listed(values) for name, values in record["columns"].items() if name in FIELDS}
        length = len(columns["time_s"])
        for name, values in columns.items():
            if len(values) != length:
                raise ValueError(f"{name} has {len(values)} values, but there are {length} times")
            # A time is never missing.
            columns[name] = [
                math.nan if value is None and name != "time_s" else number(value, *RANGES[name]) for value in values
            ]
        block = Samples.of(**{name: np.array(values, dtype=float) for name, values in columns.items()})
        self._blocks[text(record["device"])].append(block)
        self._ends(float(block.time_s[-1]))

    def _add_windows(self, record: Mapping[str, Any]) -> None:
        for name, start, end in _listed(record["windows"]):
            start_s, end_s = _time(start), _time(end)
            if end_s < start_s:
                raise ValueError(f"a window ends before it starts: {start_s:g} s to {end_s:g} s")
            if name not in self._names:
                require_levels(text(name))
            self._lists["windows"].append((self._names.setdefault(name, name), start_s, end_s))
            self._last_window_s = max(self._last_window_s, end_s)
        self._ends(self._last_window_s)

    def _add_event(self, record: Mapping[str, Any]) -> None:
        what, device = text(record["what"]), record.get("device")
        self._lists["events"].append(f"{text(device, LONGEST_NAME)}: {what}" if device else what)

    def _add_shares(self, record: Mapping[str, Any]) -> None:
        found: dict[str, Any] = {"time_s": _time(record["time_s"])}
        if record.get("cpu") is not None:
            found["cpu"] = number(record["cpu"], 0.0)
        if "gpus" in record:  # See `GpuShare`.
            found["gpus"] = {
                text(gpu): {text(name): None if value is None else number(value, 0.0) for name, value in share.items()}
                for gpu, share in record["gpus"].items()
            }
        self._lists["shares"].append(found)

    def _add_end(self, record: Mapping[str, Any]) -> None:
        end_s = max(_time(record["time_s"]), self._last_window_s)
        if end_s < self._found["start_s"]:
            raise ValueError("the end is before the start")
        code = record["exit_code"]
        code = None if code is None else integer(code, -(2**31), 2**32)
        self._found |= {"end_s": end_s, "exit_code": code, "complete": True}

    def finished(self) -> Recording:
        """The recording. Raises InputError: the times of a device's samples do not ascend, or its counter sinks."""
        samples, empty = {}, Samples.of(np.empty(0))
        for name, blocks in self._blocks.items():
            columns = (np.concatenate([getattr(block, field) for block in (empty, *blocks)]) for field in FIELDS)
            samples[name] = Samples(*columns)
            samples[name].refuse_sinking_counter()
        lists: dict[str, Any] = {name: tuple(values) for name, values in self._lists.items()}
        return Recording(samples=samples, **self._found, **lists)


def _time(value: Any) -> float:
    return number(value, *RANGES["time_s"])


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list is expected, not {shown(value)}")
    return value
