"""A worker's part of a campaign on a cluster: it opens its device, and measures what it is told to.

The functions run on the worker. They write no files, so a worker that dies leaves nothing behind.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import InputError
from . import session
from .campaign import Campaign, NetworkTask, Task
from .journal import now

if TYPE_CHECKING:
    import torch

    from ..metering import Sensor


@dataclass(frozen=True)
class Opened:
    """What a worker says about its device.

    Args:
        device: Name of the device's model, by which measurements are put into datasets.
        session: The power of the idle device and the properties of its sensor, for the journal; None without a sensor.
    """

    device: str
    board: str | None
    facts: dict[str, Any]
    session: dict[str, Any] | None


@dataclass
class _Bench:
    """The device of this process, with its sensors. They poll until they are closed."""

    campaign: Campaign
    device: torch.device
    sensor: Sensor
    second: Sensor | None
    entered: ExitStack


_OPEN: list[_Bench] = []  # at most one: a worker keeps its sensor from one measurement to the next


def open_device(campaign: Campaign, device: str, version: str, *, power: bool) -> Opened:
    """Get the device of this worker ready, and describe it.

    Raises:
        InputError: This worker has another version of joulecast, or no such device.
        SensorError, ClockError: Power cannot be read, or a clock cannot be locked.
    """
    if version != __version__:
        raise InputError(
            "this worker has another version of joulecast",
            given=__version__,
            allowed=version,
            hint="install the same version on all machines of the cluster",
        )
    from ..metering import NoSensor
    from . import devices

    close_device()
    found = devices.find_device(device)
    session.ready_clocks(campaign, found)
    sensor = devices.sensor_of(found) if power else NoSensor("not asked for")
    second = session.second_log(found) if campaign.second_log else None
    started = now()
    with ExitStack() as entered:
        for each in (sensor, second):
            if each is not None:
                entered.enter_context(each)
        first = None if isinstance(sensor, NoSensor) else session.idle_and_probed(found, sensor)
        _OPEN.append(_Bench(campaign, found, sensor, second, entered.pop_all()))
    return Opened(
        device=devices.name_of(found),
        board=devices.board_of(found),
        facts={**devices.facts_of(found, sensor), "joulecast": __version__},
        session=None if first is None else {"status": "session", "started": started, **first},
    )


def measure_here(task: Task | NetworkTask) -> dict[str, Any]:
    """Make one measurement on the device that `open_device` has opened, at the clock of the task.

    Raises ClockError: the clock cannot be locked. Raises SensorError, DeviceError: the sensor or the GPU is lost.
    """
    from . import collection

    (bench,) = _OPEN
    with collection.held(task.clock_mhz, bench.device):
        return collection.measure(task, bench.campaign, bench.device, bench.sensor, bench.second)


def close_device() -> None:
    """Stop the sensors of this worker."""
    while _OPEN:
        _OPEN.pop().entered.close()
