"""The journal of a campaign: one line of JSON per finished measurement, on disk before the next one starts.

A campaign that is killed loses at most the measurement in progress: each line is written completely and synced, and an
incomplete last line is removed when the campaign is resumed. A lock, which ends with its process, keeps other campaigns
out. Each line ends in a checksum of its number and text, so that changed, moved and repeated lines are detected.
"""

from __future__ import annotations

import datetime
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from math import hypot
from pathlib import Path
from statistics import median
from typing import Any, Self

from ..datasets import Card, Dataset, Measurement, NetworkMeasurement, save
from ..errors import InputError, JournalError
from ..operations.operation import Operation
from ..system.regular_files import refusing_damage
from ..system.whole_files import append_whole, lock

JOURNAL_VERSION = 3
"""Version of the format. Since version 3 lines have checksums."""

_LINE = re.compile(rb'(\{.*), "crc32": "([0-9a-f]{8})"\}')
_NEXT = "restore the file, or delete that line and all after it, and go on with --resume"


def now() -> str:
    """The time of day in UTC, as records state it: ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Journal:
    """Append-only records of one campaign.

    Args:
        path: The file, which is created if it does not exist.
        campaign: The campaign that is run; a journal of another campaign is refused. None to read any journal without
            changing it.
        facts: Further facts for the header, such as versions; a journal with other facts is refused.

    Raises:
        JournalError: The journal is of another campaign, machine or version, another process writes to it, or a line is
            damaged.
    """

    def __init__(
        self, path: str | Path, campaign: Mapping[str, Any] | None, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        self.torn = False
        self._reads_only = campaign is None
        if not self.path.is_file() and (self._reads_only or self.path.exists()):
            raise self._error(
                "there is no journal", "name the folder of a campaign that has begun, or use another --out"
            )
        with refusing_damage("the journal cannot be opened", self.path, JournalError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("rb" if self._reads_only else "a+b", buffering=0)
        try:
            if not lock(self._file, wait=False):
                raise self._error("another campaign is writing to this journal", "wait for it, or use another --out")
            header, *self.records = self._lines(campaign, facts or {})
            self.campaign: dict[str, Any] = header["campaign"]
            self.facts: dict[str, Any] = header["facts"]
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record, and wait until it is on disk.

        Raises JournalError: the disk is full. Earlier records stay, and the incomplete line is removed.
        """
        self._write(record)
        self.records.append(dict(record))

    def _error(self, what: str, hint: str, line: int | None = None) -> JournalError:
        return JournalError(what, given=f"{self.path}" + (f", line {line}" if line else ""), hint=hint)

    def _lines(self, campaign: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The header and the records; a new journal begins with its header."""
        self._file.seek(0)
        *lines, rest = self._file.read().split(b"\n")
        self._count = len(lines)
        if rest:
            self.torn = True
            if not self._reads_only:
                self._file.truncate(self._file.tell() - len(rest))
        found = [self._parsed(number, line) for number, line in enumerate(lines, start=1)]
        if not found and campaign is None:
            raise self._error("this journal is empty", "collect the campaign again")
        if not found:
            found = [{"journal_version": JOURNAL_VERSION, "campaign": dict(campaign or {}), "facts": dict(facts)}]
            self._write(found[0])
        version, *parts = (found[0].get(name) for name in ("journal_version", "campaign", "facts"))
        if version != JOURNAL_VERSION or not all(isinstance(part, dict) for part in parts):
            raise JournalError(
                "the first line is not that of a journal of this version",
                given=f"{self.path}: version {version}",
                allowed=JOURNAL_VERSION,
                hint="use another --out, or the version of joulecast that wrote it",
            )
        begun = found[0]["campaign"]
        # A file may be renamed: settings decide.
        if campaign is not None and begun != {**campaign, "name": begun.get("name")}:
            raise self._error("this journal belongs to another campaign", "use another --out, or the same settings")
        for name in facts if campaign is not None else ():
            if found[0]["facts"].get(name) != facts[name]:
                raise JournalError(
                    "this journal was measured in another way, and the card of a dataset states one for all",
                    given=f"{self.path}: {name} {facts[name]}",
                    allowed=f"{name} {found[0]['facts'].get(name)}",
                    hint="go on as it was begun (threads: OMP_NUM_THREADS), or use another --out",
                )
        return found

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        sealed = _LINE.fullmatch(line)
        # The checksum begins with the number, which ties a line to its place.
        if sealed is None or int(sealed[2], 16) != zlib.crc32(sealed[1], number):
            raise self._error("a line of this journal was damaged, changed, moved or repeated", _NEXT, number)
        try:
            value: dict[str, Any] = json.loads(sealed[1] + b"}")
        except (ValueError, RecursionError) as error:
            raise self._error("a line of this journal is not a record", _NEXT, number) from error
        return value

    def _write(self, record: Mapping[str, Any]) -> None:
        text = json.dumps(record).encode().removesuffix(b"}")
        try:
            append_whole(self._file, b'%b, "crc32": "%08x"}\n' % (text, zlib.crc32(text, self._count + 1)))
        except OSError as error:
            hint = "make room and go on with --resume: nothing that was finished is lost"
            raise self._error(f"the journal cannot be written: {error.strerror}", hint) from error
        self._count += 1


# Turns the journal of a campaign into datasets, one per clock. Needs no torch, so it can run on another machine.

METHODS = {
    "inference": ("forward_distinct", "forward in eval and inference mode over distinct instances"),
    "training": (
        "forward_backward_distinct",
        "forward in train mode and backward with a random output gradient over distinct instances, gradients cleared",
    ),
}
_WALL_CLOCK = ("", "wall clock")
_BY_CPU_TIME = ("_cpu_time", "CPU time of the process, which other programs do not lengthen")
_SAME_CLOCK = 0.01  # Relative difference; clocks change in steps of about 1 %.

Record = Mapping[str, Any]


def datasets_of(journal: Journal) -> dict[int | None, Dataset]:
    """The finished measurements of a journal, by the clock that was set; None stands for the GPU's default.

    Raises InputError: the journal has no finished measurement. Raises DatasetError: a measurement is impossible.
    """
    records = [(line, record) for line, record in enumerate(journal.records, start=2) if "clock_mhz" in record]
    clocks = dict.fromkeys(
        record["clock_mhz"] for _, record in records if record["status"] == "ok" and "operation" in record
    )
    if not clocks:
        raise InputError(
            "no operation was measured",
            given=f"{journal.path}, {len(records)} records of operations and whole networks",
            allowed="at least one operation, which a dataset needs",
            hint="go on with --resume; a record that failed states its reason",
        )
    return {
        clock: _dataset(journal, clock, [item for item in records if item[1]["clock_mhz"] == clock]) for clock in clocks
    }


def _dataset(journal: Journal, clock: int | None, records: list[tuple[int, Record]]) -> Dataset:
    measured = [(line, record) for line, record in records if record["status"] == "ok"]
    measurements = tuple(_measurement(record, line, journal) for line, record in measured if "operation" in record)
    days = sorted(m.started[:10] for m in measurements)
    used = {m.method for m in measurements}
    facts = journal.facts
    loads = [record["load_average"] for _, record in measured if record.get("load_average") is not None]
    idle = [record["idle"]["power_w"] for record in journal.records if record["status"] == "session"]
    idle = [power_w for power_w in idle if power_w is not None]
    card = Card(
        gpu=journal.campaign["device"],
        clock_mhz=_held_mhz(measurements, clock, facts.get("max_clock_mhz")),
        source=f"joulecast collect, campaign {journal.campaign['name']}",
        licence="Apache-2.0",
        method=dict(pair for mode in METHODS if (pair := _method(mode, journal))[0] in used),
        sensor=facts.get("sensor", "none"),
        software={name: facts.get(name, "none") for name in ("torch", "cuda", "driver")},
        measured=(days[0], days[-1]),
        power_limit_w=facts.get("power_limit_w"),
        idle_power_w=median(idle) if idle else None,
        limits=tuple(sorted({record["reason"] for _, record in records if record["status"] == "failed"})),
        threads=facts.get("threads"),
        load_average=(min(loads), median(loads), max(loads)) if loads else (),
    )
    return Dataset(card, measurements, tuple(_networks(measured, journal.campaign["name"])))


def _held_mhz(measurements: tuple[Measurement, ...], asked: int | None, most_mhz: float | None) -> float | None:
    """The clock of a dataset: the one that was really held; None where the GPU chose its clock.

    A clock was locked by hand if all measurements have the same clock, and it is below the highest.
    """
    held = [m.clock_mhz for m in measurements if m.clock_mhz is not None]
    if not held:
        return asked
    median_mhz = median(held)
    steady = all(abs(mhz / median_mhz - 1) <= _SAME_CLOCK for mhz in held)
    by_hand = steady and most_mhz is not None and median_mhz < (1 - _SAME_CLOCK) * most_mhz
    return round(median_mhz) if asked is not None or by_hand else None


def _networks(records: list[tuple[int, Record]], campaign: str) -> Iterator[NetworkMeasurement]:
    for line, record in records:
        if "network" in record:
            task, time_s, power_w = record["network"], record["timing"]["time_s"], record["power"]["power_w"]
            yield NetworkMeasurement(
                network=task["model"],
                input_shape=tuple(task["input_shape"]),
                precision=task["precision"],
                mode=task["mode"],
                time_s=time_s,
                power_w=power_w,
                energy_j=None if power_w is None else power_w * time_s,
                campaign=campaign,
                line=line,
            )


def _method(mode: str, journal: Journal) -> tuple[str, str]:
    """Name and description of the method by which operations of a mode were measured."""
    name, text = METHODS[mode]
    suffix, clock = _BY_CPU_TIME if journal.facts.get("cpu_time") else _WALL_CLOCK
    return name + suffix, f"{text}, {clock}"


def _measurement(record: Record, line: int, journal: Journal) -> Measurement:
    timing, power = record["timing"], record["power"]
    operation = Operation.from_dict(record["operation"])
    power_w, energy_std_j = power["power_w"], None
    time_std_s, power_std_w = timing.get("time_std_s"), power["power_std_w"]  # Older journals have no error of time.
    if time_std_s is not None and power_w is not None and power_std_w is not None:
        # Errors of time and power, carried on to energy (Nicolai 2025). That of power is the spread of its readings, so
        # this is an upper bound of the error of the mean.
        energy_std_j = hypot(power_w * time_std_s, timing["time_s"] * power_std_w)
    return Measurement(
        operation=operation,
        time_s=timing["time_s"],
        power_w=power_w,
        energy_j=None if power_w is None else power_w * timing["time_s"],
        device_time_s=timing["device_time_s"],
        time_std_s=time_std_s,
        power_std_w=power_std_w,
        energy_std_j=energy_std_j,
        iterations=timing["iterations"],
        duration_s=timing["end_s"] - timing["start_s"],
        clock_mhz=power["clock_mhz"],
        temperature_c=power["temperature_c"],
        campaign=journal.campaign["name"],
        method=_method(operation.mode, journal)[0],
        started=record["started"],
        line=line,
        remark="; ".join((*timing["warnings"], *power["warnings"])),
    )


def write_datasets(journal: Journal, folder: Path) -> list[Path]:
    """Turn a journal into a dataset in a folder or, where several clocks were set, into one folder for each.

    Raises InputError, DatasetError: as for `datasets_of`. Raises MissingDependencyError: pyarrow is not installed; the
    journal holds everything.
    """
    datasets = datasets_of(journal)
    if len(datasets) == 1:
        return [save(dataset, folder) for dataset in datasets.values()]
    # A journal may come from another machine, so its texts must not become paths.
    names = {clock: "default-clock" if clock is None else f"{int(clock)}-mhz" for clock in datasets}
    return [save(dataset, folder / names[clock]) for clock, dataset in datasets.items()]
