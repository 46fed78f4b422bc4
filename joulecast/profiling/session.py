"""One run of `joulecast collect`, whichever way it was called: plan, measure with progress, write the dataset."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingDependencyError
from .campaign import NetworkTask, Task, duration_s, load_campaign, plan

JOURNAL = "journal.jsonl"


def describe(campaign: Path, limit: int | None = None) -> str:
    """What a campaign would measure, and about how long it takes."""
    settings = load_campaign(campaign)
    tasks = plan(settings, limit)
    kinds: dict[str, int] = {}
    for task in tasks:
        kind = task.operation.kind if isinstance(task, Task) else "whole network"
        kinds[kind] = kinds.get(kind, 0) + 1
    lines = [f"{count:6d} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1])]
    unique = len({task.operation for task in tasks if isinstance(task, Task)})
    seconds = duration_s(settings, len(tasks))
    return "\n".join([*lines, f"{len(tasks)} measurements of {unique} operations, about {_duration(seconds)}"])


def run(
    campaign: Path,
    out: Path,
    device: str = "cuda",
    *,
    limit: int | None = None,
    resume: bool = False,
    power: bool = True,
) -> str:
    """Run a campaign and say in a line what came out.

    Args:
        campaign: TOML file.
        out: Folder for journal and dataset.
        device: cpu, cuda or cuda:1.
        limit: Only so many operations.
        resume: Go on with the journal in `out`.
        power: Whether to read the power sensor.

    Raises:
        JoulecastError: What was finished is in the journal.
    """
    try:
        from . import collection
    except ImportError as error:
        raise MissingDependencyError("collecting needs torch", hint="pip install 'joulecast[collect]'") from error
    from .journal import Journal
    from .sensors import NoSensor

    settings = load_campaign(campaign)
    found = collection.find_device(device)
    tasks = plan(settings, limit)
    sensor = collection.sensor_of(found) if power else NoSensor()
    name = collection.device_name(found)
    # The device is part of what a journal belongs to: times of two GPUs must not mix.
    belongs_to = {**settings.to_json(), "device": name}
    with Journal(out / JOURNAL, belongs_to, collection.facts_of(found, sensor)) as journal:
        if journal.records and not resume:
            raise InputError(
                "this folder holds measurements of the same campaign",
                given=f"{out}, {len(journal.records)} records",
                hint="go on with --resume, or use another --out",
            )
        if journal.torn:
            _say("the journal's last line was torn and is measured again\n")
        _say(f"{len(tasks)} measurements on {name}, power: {sensor.facts()['sensor']}\n")
        try:
            with sensor:
                collection.collect(tasks, settings, found, journal, sensor, _Progress(tasks))
        except KeyboardInterrupt:
            _say("\nstopped; go on with --resume")
        _say("\n")
        return _finish(journal, out)


def finish(out: Path) -> str:
    """Turn the journal in a folder into a dataset there, and say in a line what came out."""
    from .journal import Journal

    with Journal(out / JOURNAL, None) as journal:
        return _finish(journal, out)


def _finish(journal: Any, out: Path) -> str:
    from .outcome import write_dataset

    failed = sum(record["status"] == "failed" for record in journal.records)
    with suppress(MissingDependencyError):
        dataset = write_dataset(journal, out)
        return f"{out}: {len(dataset.measurements)} measurements, {failed} failed"
    return (
        f"{journal.path}: {len(journal.records)} records, {failed} failed; pyarrow is not installed here: "
        f"`joulecast datasets from-journal {out}` makes the dataset where it is"
    )


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if seconds >= 60 else f"{seconds:.0f} s"


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class _Progress:
    """One line on stderr: how far, how long still, and what was last."""

    def __init__(self, tasks: list[Task | NetworkTask]) -> None:
        self._total = len(tasks)
        self._start_s = time.monotonic()
        self._before: int | None = None

    def __call__(self, done: int, record: Mapping[str, Any]) -> None:
        if self._before is None:
            self._before = done - 1
        left_s = (time.monotonic() - self._start_s) / (done - self._before) * (self._total - done)
        last = record["operation"]["kind"] if "operation" in record else record["network"]["model"]
        last += " failed" if record["status"] == "failed" else ""
        _say(f"\r{done}/{self._total}, {_duration(left_s)} left, {last:<32}")
