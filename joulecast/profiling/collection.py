"""Runs a campaign: makes the measurements that its journal does not have yet, and writes each into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

import torch

from ..extraction.own_file import own_model
from ..metering import Sensor, estimate
from ..metering.estimate import DISAGREEMENT
from .campaign import Campaign, NetworkTask, Task
from .devices import clocks_of, limits_of, load_average_of, refuse_broken
from .journal import Journal, now
from .runners import DTYPES, WholeNetwork
from .timing import Timing, running, time_block, time_operation

_NETWORK_INPUTS = 2  # A network is larger than any cache. With two inputs it never sees the same one twice in a row.

Progress = Callable[[int, Mapping[str, Any]], None]


def _time_network(task: NetworkTask, device: torch.device, *, seed: int, **loop: Any) -> Timing:
    from ..extraction.models.named_models import build_to_run

    generator = torch.Generator(device).manual_seed(seed)
    dtype = DTYPES.get(task.precision, torch.float32)
    made, _ = own_model(task.model, {})
    model = (build_to_run(made) if isinstance(made, str) else made).to(device=device, dtype=dtype)
    with running(task.mode, task.precision):
        block = [WholeNetwork(model, task.input_shape, task.mode, generator) for _ in range(_NETWORK_INPUTS)]
        return time_block(block, device, **loop)


def measure(
    task: Task | NetworkTask, campaign: Campaign, device: torch.device, sensor: Sensor, second: Sensor | None = None
) -> dict[str, Any]:
    """Make one measurement. Where the operation cannot run or does not fit into memory, the record says why.

    Args:
        second: Another sensor of the same device that checks the first, already entered; None for no check.
    """
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
    if device.type == "cuda":
        torch.cuda.empty_cache()  # Memory that the last measurement left in PyTorch's pool would count as used.
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
        checked = estimate(logged, timing.start_s, timing.end_s, three_sigma=campaign.three_sigma)
        power = replace(power, warnings=(*power.warnings, *_differs(power.power_w, checked.power_w)))
        record |= {"second_log": {"power_w": checked.power_w, "trace": logged.trace(timing.start_s)}}
    return {
        **record,
        "status": "ok",
        "timing": asdict(timing),
        "power": asdict(power),
        "trace": samples.trace(timing.start_s),
    }


def _differs(power_w: float | None, second_w: float | None) -> tuple[str, ...]:
    if power_w is None or second_w is None:
        return ("the second log has no power",) if second_w is None else ()
    difference = second_w / power_w - 1
    return (f"the second log differs by {100 * difference:+.1f} %",) if abs(difference) > DISAGREEMENT else ()


def collect(
    tasks: Sequence[Task | NetworkTask],
    campaign: Campaign,
    device: torch.device,
    journal: Journal,
    sensor: Sensor,
    progress: Progress = lambda done, record: None,
    second: Sensor | None = None,
) -> None:
    """Make all measurements that the journal does not have yet. A clock stays locked until the plan changes it.

    Raises ClockError: a clock cannot be locked. Raises JournalError, SensorError, DeviceError: the campaign cannot go
    on. Finished measurements are in the journal.
    """
    known = {record["key"] for record in journal.records}
    left = [task for task in tasks if task.key not in known]
    done = len(tasks) - len(left)
    for clock_mhz, group in groupby(left, key=lambda task: task.clock_mhz):
        with held(clock_mhz, device):
            for task in group:
                record = measure(task, campaign, device, sensor, second)
                journal.append(record)
                done += 1
                progress(done, record)


def held(clock_mhz: int | None, device: torch.device) -> AbstractContextManager[None]:
    """The device with its clock locked; None leaves it as it is. Raises ClockError: the clock cannot be locked."""
    return nullcontext() if clock_mhz is None else clocks_of(device).locked(clock_mhz)
