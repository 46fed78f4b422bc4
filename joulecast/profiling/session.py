"""One run of `joulecast collect`: plan, measure, and write the dataset."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import (
    DatasetError,
    InputError,
    JoulecastError,
    JournalError,
    MissingDependencyError,
    SensorError,
    needing,
    with_extra,
)
from ..system.regular_files import first_line
from .campaign import Campaign, NetworkTask, Task, duration_s, plan

if TYPE_CHECKING:
    import torch

    from ..metering import Sensor
    from .journal import Journal

JOURNAL = "journal.jsonl"
IDLE_S = 3.0
"""Seconds in which the power of the idle device is measured."""


def describe(campaign: Campaign, limit: int | None = None, part: tuple[int, int] = (1, 1)) -> str:
    """Describe what a campaign would measure, and estimate how long it takes."""
    tasks = plan(campaign, limit, part)
    kinds: dict[str, int] = {}
    for task in tasks:
        kind = task.operation.kind if isinstance(task, Task) else "whole network"
        kinds[kind] = kinds.get(kind, 0) + 1
    lines = [f"{count:6d} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1])]
    unique = len({task.operation for task in tasks if isinstance(task, Task)})
    seconds = duration_s(campaign, len(tasks))
    return "\n".join([*lines, f"{len(tasks)} measurements of {unique} operations, about {_duration(seconds)}"])


def run(
    campaign: Campaign,
    out: Path,
    device: str = "cuda",
    *,
    limit: int | None = None,
    part: tuple[int, int] = (1, 1),
    resume: bool = False,
    power: bool = True,
) -> str:
    """Run a campaign, and return its result in a line of text.

    Raises JoulecastError: the campaign cannot go on. Finished measurements are in the journal.
    """
    with needing("collecting needs torch", with_extra("collect")):
        from . import collection, devices
    from ..metering import NoSensor
    from .journal import Journal

    found = devices.find_device(device)
    ready_clocks(campaign, found)
    tasks = plan(campaign, limit, part)
    sensor = devices.sensor_of(found) if power else NoSensor("not asked for")
    second = second_log(found) if campaign.second_log else None
    name = devices.name_of(found)
    # The device is part of the journal's identity, because times of two GPUs must not be mixed.
    belongs_to = {**campaign.to_dict(), "device": name}
    with Journal(out / JOURNAL, belongs_to, devices.facts_of(found, sensor)) as journal:
        check_resumed(journal, resume)
        say(f"{len(tasks)} measurements on {name}, power: {sensor.facts()['sensor']}\n")
        try:
            with termination_as_interrupt(), sensor, second or nullcontext(), _session(journal, sensor):
                collection.collect(tasks, campaign, found, journal, sensor, _Progress(tasks), second)
        except KeyboardInterrupt:
            say("\nstopped; go on with --resume")
        say("\n")
        return finish_journal(journal, out)


def finish(out: Path) -> str:
    """Turn the journal in a folder into datasets there, and return the result in a line of text."""
    from .journal import Journal

    with Journal(out / JOURNAL, None) as journal:
        return finish_journal(journal, out)


def check_resumed(journal: Journal, resume: bool) -> None:
    """Refuse to continue a journal that has records unless the user wants it, and say what of it was lost."""
    if journal.records and not resume:
        raise InputError(
            "this folder holds measurements of the same campaign",
            given=f"{journal.path.parent}, {len(journal.records)} records",
            hint="go on with --resume, or use another --out",
        )
    if journal.torn:
        say("the journal's last line was incomplete; it is measured again\n")


def ready_clocks(campaign: Campaign, device: torch.device) -> None:
    """Refuse unsupported clocks before anything is measured, and reset a clock that a crash left locked."""
    from .devices import clocks_of

    wanted = [clock for clock in campaign.clocks if clock is not None]
    if not wanted and device.type != "cuda":
        return
    try:
        clocks = clocks_of(device)
    except SensorError:
        if wanted:
            raise
        return  # without NVML and nvidia-smi nobody can have locked a clock here
    if clocks.restore():
        say("a campaign that crashed had left this GPU's clock locked; it was reset\n")
    for clock in wanted:
        clocks.check(clock)


def second_log(device: torch.device) -> Sensor:
    """nvidia-smi as a second sensor."""
    from . import devices

    second = devices.second_sensor_of(device)
    if second is None:
        raise SensorError(
            "there is no second log of this device's power",
            given=str(device),
            allowed="a GPU that nvidia-smi shows",
            hint="omit second_log",
        )
    return second


@contextmanager
def _session(journal: Journal, sensor: Sensor) -> Iterator[None]:
    """Record in the journal the power of the idle device before and after."""
    from ..metering import NoSensor
    from ..metering.estimate import idle
    from .journal import now

    if isinstance(sensor, NoSensor):
        yield
        return
    say("measuring the idle device\n")
    number = sum("idle" in record and "ended" not in record for record in journal.records)
    session = {"key": f"session {number}", "status": "session", "started": now()}
    journal.append({**session, "idle": asdict(idle(sensor, IDLE_S))})
    stopped: KeyboardInterrupt | None = None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        stopped = interrupt
    after = idle(sensor, IDLE_S)
    journal.append({**session, "key": f"session {number} ended", "ended": now(), "idle": asdict(after)})
    if stopped is not None:
        raise stopped


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Treat the end of a job or of a terminal like Ctrl-C, so that the campaign stops cleanly."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        names = []  # Python allows handlers in the main thread only
    before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def finish_journal(journal: Journal, out: Path) -> str:
    """Turn an open journal into datasets in a folder, and return the result in a line of text."""
    from .journal import write_datasets
    from .summary import write_summary

    measured = [record for record in journal.records if record.get("status") != "session"]
    failed = sum(record.get("status") == "failed" for record in measured)
    counts = f"{len(measured) - failed} measurements, {failed} failed"
    try:
        folders = write_datasets(journal, out)
        page = write_summary(journal, out)
    except MissingDependencyError as error:
        # The collecting machine may have torch and numpy only. The journal has everything that a dataset needs.
        advice = f"`joulecast datasets from-journal {out}` makes the dataset on a machine that has it"
        return f"{journal.path}: {counts}\n{error}\n{advice}"
    except (OSError, DatasetError) as error:
        raise InputError(
            "dataset and summary cannot be written",
            given=str(error),
            hint=f"free disk space, then `joulecast datasets from-journal {out}`; the journal has every measurement",
        ) from error
    except JoulecastError:
        raise
    except Exception as error:
        # The checksums are right, so the record was written by another program.
        raise JournalError(
            "a record of this journal was not written by a campaign",
            given=f"{journal.path}: {type(error).__name__}: {first_line(error)}",
            hint="restore the journal, or collect the campaign again",
        ) from error
    return f"{', '.join(map(str, folders))}: {counts}; see {page}"


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if seconds >= 60 else f"{seconds:.0f} s"


def say(text: str) -> None:
    """Write to stderr at once."""
    sys.stderr.write(text)
    sys.stderr.flush()


class _Progress:
    """A line on stderr with the number of measurements done, the time left, and the last measurement."""

    def __init__(self, tasks: Sequence[Task | NetworkTask]) -> None:
        self._total = len(tasks)
        self._start_s = time.monotonic()
        self._before: int | None = None

    def __call__(self, done: int, record: Mapping[str, Any]) -> None:
        if self._before is None:
            self._before = done - 1
        left_s = (time.monotonic() - self._start_s) / (done - self._before) * (self._total - done)
        last = record["operation"]["kind"] if "operation" in record else record["network"]["model"]
        last += " failed" if record["status"] == "failed" else ""
        say(f"\r{done}/{self._total}, {_duration(left_s)} left, {last:<32}")
