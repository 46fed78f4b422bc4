"""Running a campaign: find the device, measure, write each measurement into the journal."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ..errors import InputError, JoulecastError
from .campaign import Campaign, NetworkTask, Task
from .journal import Journal
from .power import estimate
from .runners import DTYPES, WholeNetwork
from .sensors import NoSensor, NvmlSensor, Sensor
from .timing import Timing, running, time_block, time_operation

_CPU_CACHE_BYTES = 32 * 2**20
_CPU_MEMORY_BYTES = 2**30
_NETWORK_INPUTS = 2  # A network is larger than any cache; two inputs keep it from seeing the same one twice in a row.


class DeviceError(JoulecastError):
    """The device that is measured on cannot go on."""

    exit_code = 11


def find_device(name: str) -> torch.device:
    """The device that a user names: cpu, cuda or cuda:1.

    Raises:
        InputError: There is no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError("this is no device", given=repr(name), allowed="cpu, cuda, cuda:0, ...") from error
    if device.type == "cpu":
        return device
    if device.type != "cuda" or not torch.cuda.is_available():
        raise InputError(
            "this device is not there",
            given=name,
            allowed="cpu" + (", cuda" if torch.cuda.is_available() else ""),
            hint=None if torch.cuda.is_available() else "check `nvidia-smi`, and that torch is a CUDA build",
        )
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise InputError("there is no such GPU", given=name, allowed=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    return torch.device("cuda", index)


def sensor_of(device: torch.device) -> Sensor:
    """The power sensor of a device.

    Raises:
        SensorError: The GPU's power cannot be read.
    """
    return NvmlSensor(_nvml_index(device)) if device.type == "cuda" else NoSensor()


def _nvml_index(device: torch.device) -> int:
    # CUDA_VISIBLE_DEVICES renumbers torch's GPUs, not NVML's; torch knows the way back.
    index: int = torch.cuda._get_nvml_device_index(device)
    return index


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.processor() or platform.machine()}"


def facts_of(device: torch.device, sensor: Sensor) -> dict[str, Any]:
    """What a dataset's card should say of the machine."""
    return {**sensor.facts(), "torch": torch.__version__, "cuda": torch.version.cuda or "none"}


def _limits(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {"cache_bytes": _CPU_CACHE_BYTES, "memory_bytes": _CPU_MEMORY_BYTES}
    cache: int = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 * 2**20)
    return {"cache_bytes": cache, "memory_bytes": torch.cuda.mem_get_info(device)[0]}


def _time_network(task: NetworkTask, device: torch.device, *, seconds: float, seed: int) -> Timing:
    from .torchvision_models import build

    generator = torch.Generator(device).manual_seed(seed)
    dtype = DTYPES.get(task.precision, torch.float32)
    model = build(task.model, weights=True).to(device=device, dtype=dtype)
    with running(task.mode, task.precision):
        block = [WholeNetwork(model, task.input_shape, task.mode, generator) for _ in range(_NETWORK_INPUTS)]
        return time_block(block, device, seconds=seconds)


def _refuse_broken(device: torch.device, reason: str) -> None:
    """End the campaign where the device itself is broken, or every operation to come would be recorded as failed.

    Raises:
        DeviceError: The GPU is in an error state, which only a new process can leave.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise DeviceError(
            "the GPU is in an error state", given=reason, hint="what was finished is kept; go on with --resume"
        ) from error


def measure(task: Task | NetworkTask, campaign: Campaign, device: torch.device, sensor: Sensor) -> dict[str, Any]:
    """Make one measurement; where it cannot run or does not fit, the record says why."""
    seconds, seed = campaign.seconds, campaign.seed + task.repeat
    subject = {"operation": task.operation.to_json()} if isinstance(task, Task) else {"network": asdict(task)}
    record: dict[str, Any] = {
        "key": task.key,
        **subject,
        "repeat": task.repeat,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what the last measurement left in PyTorch's pool counts as taken
    try:
        if isinstance(task, Task):
            timing = time_operation(task.operation, device, seconds=seconds, seed=seed, **_limits(device))
        else:
            timing = _time_network(task, device, seconds=seconds, seed=seed)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
        _refuse_broken(device, reason)
        return {**record, "status": "failed", "reason": reason}
    power = estimate(sensor.window(timing.start_s, timing.end_s), timing.start_s, timing.end_s)
    return {**record, "status": "ok", "timing": asdict(timing), "power": asdict(power)}


def collect(
    tasks: Sequence[Task | NetworkTask],
    campaign: Campaign,
    device: torch.device,
    journal: Journal,
    sensor: Sensor,
    progress: Callable[[int, Mapping[str, Any]], None] = lambda done, record: None,
) -> None:
    """Measure what the journal does not hold yet.

    Args:
        tasks: The plan.
        campaign: Its settings.
        device: Where.
        journal: Takes each record before the next measurement starts.
        sensor: Entered.
        progress: Called after each measurement with how many are done, and the record.

    Raises:
        JournalError, SensorError: What was finished is in the journal.
    """
    done = {record["key"] for record in journal.records}
    for task in tasks:
        if task.key in done:
            continue
        record = measure(task, campaign, device, sensor)
        journal.append(record)
        done.add(task.key)
        progress(len(done), record)
