"""One run of `joulecast collect`: plan, make the measurements that the journal does not have yet, write the dataset.

Only measuring needs torch, so that a journal becomes a dataset on any machine.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import groupby
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
from ..extraction.own_file import own_model
from ..metering import Sensor, estimate
from ..metering.command import handling
from ..metering.estimate import DISAGREEMENT, idle
from ..system.regular_files import first_line
from ..units import duration
from .campaign import Campaign, NetworkTask, Task, duration_s, plan
from .journal import Journal, now, write_datasets

if TYPE_CHECKING:
    import torch

    from .timing import Timing

JOURNAL = "journal.jsonl"
IDLE_S = 3.0
"""Seconds in which the power of the idle device is measured."""

_NETWORK_INPUTS = 2  # A network is larger than any cache. With two inputs it never sees the same one twice in a row.


def describe(campaign: Campaign, limit: int | None = None, part: tuple[int, int] = (1, 1)) -> str:
    """Describe what a campaign would measure, and estimate how long it takes."""
    tasks = plan(campaign, limit, part)
    kinds = Counter(task.operation.kind if isinstance(task, Task) else "whole network" for task in tasks)
    unique = len({task.operation for task in tasks if isinstance(task, Task)})
    about = duration(duration_s(campaign, len(tasks)))
    lines = [f"{count:6d} {kind}" for kind, count in kinds.most_common()]
    return "\n".join([*lines, f"{len(tasks)} measurements of {unique} operations, about {about}"])


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
        from . import devices

    found = devices.find_device(device)
    _ready_clocks(campaign, found)
    tasks = plan(campaign, limit, part)
    sensor = devices.sensor_of(found) if power else Sensor(None, {"sensor": "none (not asked for)"})
    second = devices.second_sensor_of(found) if campaign.second_log else None
    name = devices.name_of(found)
    # The device is part of the journal's identity, because times of two GPUs must not be mixed.
    belongs_to = {**campaign.to_dict(), "device": name}
    with Journal(out / JOURNAL, belongs_to, devices.facts_of(found, sensor)) as journal:
        if journal.records and not resume:
            raise InputError(
                "this folder holds measurements of the same campaign",
                given=f"{out}, {len(journal.records)} records",
                hint="go on with --resume, or use another --out",
            )
        if journal.torn:
            say("the journal's last line was incomplete; it is measured again\n")
        say(f"{len(tasks)} measurements on {name}, power: {sensor.facts['sensor']}\n")
        try:
            # The end of a job or of a terminal is like Ctrl-C, so that the campaign stops cleanly.
            ends = handling(signal.default_int_handler, "SIGTERM", "SIGHUP")
            with ends, sensor, second or nullcontext(), _idle_around(journal, sensor):
                _collect(tasks, campaign, found, journal, sensor, second)
        except KeyboardInterrupt:
            say("\nstopped; go on with --resume")
        say("\n")
        return _finished(journal, out)


def finish(out: Path) -> str:
    """Turn the journal in a folder into datasets there, and return the result in a line of text."""
    with Journal(out / JOURNAL, None) as journal:
        return _finished(journal, out)


def say(text: str) -> None:
    """Write to stderr at once."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _ready_clocks(campaign: Campaign, device: torch.device) -> None:
    """Refuse unsupported clocks before anything is measured, and reset a clock that a crash left locked."""
    from . import devices

    wanted = [clock for clock in campaign.clocks if clock is not None]
    if not wanted and device.type != "cuda":
        return
    try:
        clocks = devices.clocks_of(device)
    except SensorError:
        if wanted:
            raise
        return  # without NVML and nvidia-smi nobody can have locked a clock here
    if clocks.restore():
        say("a campaign that crashed had left this GPU's clock locked; it was reset\n")
    for clock in wanted:
        clocks.check(clock)


def _collect(
    tasks: Sequence[Task | NetworkTask],
    campaign: Campaign,
    device: torch.device,
    journal: Journal,
    sensor: Sensor,
    second: Sensor | None,
) -> None:
    """Make all measurements that the journal does not have yet. A clock stays locked until the plan changes it."""
    from . import devices

    known = {record["key"] for record in journal.records}
    left = [task for task in tasks if task.key not in known]
    done, start_s = 0, time.monotonic()
    for clock_mhz, group in groupby(left, key=lambda task: task.clock_mhz):
        with nullcontext() if clock_mhz is None else devices.clocks_of(device).locked(clock_mhz):
            for task in group:
                record = measure(task, campaign, device, sensor, second)
                journal.append(record)
                done += 1
                left_s = (time.monotonic() - start_s) / done * (len(left) - done)
                last = task.operation.kind if isinstance(task, Task) else task.model
                last += " failed" if record["status"] == "failed" else ""
                say(f"\r{len(tasks) - len(left) + done}/{len(tasks)}, {duration(left_s)} left, {last:<32}")


def measure(
    task: Task | NetworkTask, campaign: Campaign, device: torch.device, sensor: Sensor, second: Sensor | None = None
) -> dict[str, Any]:
    """Make one measurement. Where the operation cannot run or does not fit into memory, the record says why.

    Args:
        second: Another sensor of the same device that checks the first, already entered; None for no check.
    """
    from .devices import limits_of, load_average_of, make_room, refuse_broken
    from .timing import time_operation

    seed = campaign.seed + task.repeat
    loop: dict[str, Any] = {name: getattr(campaign, name) for name in ("seconds", "loop_lengths", "floor_s")}
    subject = {"operation": task.operation.to_dict()} if isinstance(task, Task) else {"network": asdict(task)}
    record: dict[str, Any] = {
        "key": task.key,
        **subject,
        "repeat": task.repeat,
        "clock_mhz": task.clock_mhz,
        "started": now(),
    }
    load_average = load_average_of(device)
    if load_average is not None:
        record["load_average"] = load_average
    make_room(device)
    try:
        if isinstance(task, Task):
            timing = time_operation(task.operation, device, seed=seed, **loop, **limits_of(device))
        else:
            timing = _time_network(task, device, seed=seed, **loop)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
        refuse_broken(device, reason)
        return {**record, "status": "failed", "reason": reason}
    samples = sensor.window(timing.start_s, timing.end_s)
    power = estimate(samples, timing.start_s, timing.end_s, three_sigma=campaign.three_sigma)
    if second is not None:
        logged = second.window(timing.start_s, timing.end_s)
        second_w = estimate(logged, timing.start_s, timing.end_s, three_sigma=campaign.three_sigma).power_w
        record |= {"second_log": {"power_w": second_w, "trace": logged.trace(timing.start_s)}}
        doubt = None
        if second_w is None:
            doubt = "the second log has no power"
        elif power.power_w is not None and abs(difference := second_w / power.power_w - 1) > DISAGREEMENT:
            doubt = f"the second log differs by {100 * difference:+.1f} %"
        if doubt:
            power = replace(power, warnings=(*power.warnings, doubt))
    return {
        **record,
        "status": "ok",
        "timing": asdict(timing),
        "power": asdict(power),
        "trace": samples.trace(timing.start_s),
    }


def _time_network(task: NetworkTask, device: torch.device, *, seed: int, **loop: Any) -> Timing:
    import torch

    from ..extraction.models.named_models import build_to_run
    from .runners import DTYPES, Instance
    from .timing import running, time_block

    generator = torch.Generator(device).manual_seed(seed)
    dtype = DTYPES.get(task.precision, torch.float32)
    made, _ = own_model(task.model, {})
    model = (build_to_run(made) if isinstance(made, str) else made).to(device=device, dtype=dtype)
    with running(task.mode, task.precision):
        block = [Instance.of_network(model, task.input_shape, task.mode, generator) for _ in range(_NETWORK_INPUTS)]
        return time_block(block, device, **loop)


@contextmanager
def _idle_around(journal: Journal, sensor: Sensor) -> Iterator[None]:
    """Record in the journal the power of the idle device before and after, also where a user stops in between."""
    if sensor.reader is None:
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


def _finished(journal: Journal, out: Path) -> str:
    """Turn an open journal into datasets in a folder, and return the result in a line of text."""
    from . import summary

    measured = [record for record in journal.records if record.get("status") != "session"]
    failed = sum(record.get("status") == "failed" for record in measured)
    counts = f"{len(measured) - failed} measurements, {failed} failed"
    try:
        folders = write_datasets(journal, out)
        page = summary.write_summary(journal, out)
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
