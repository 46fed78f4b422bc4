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

import contextlib
import json
import math
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..checked import number, text
from ..errors import InputError
from ..system.regular_files import refuse_constant
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

    def to_dict(self) -> dict[str, Any]:
        """The device as a dictionary."""
        return {**vars(self), "facts": dict(self.facts)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises AttributeError, KeyError, TypeError, ValueError: the content is not what `to_dict` writes.
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
    """Appends lines to a new recording.

    Args:
        path: Path of the file, which must not exist yet.

    Raises:
        InputError: The file exists already, or cannot be created.
    """

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
        end, left = self._file.tell(), "".join(map(sealed, records)).encode()
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.seek(end)
                self._file.truncate()
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
    record = json.loads(line, parse_constant=refuse_constant)
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
