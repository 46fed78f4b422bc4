"""Compares measurements with those of Zeus, another program that reads the same devices."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from ..errors import MissingDependencyError, SensorError
from .result import Metering

_WINDOW = "joulecast"


class ZeusCheck:
    """A context manager that measures with Zeus.

    Raises:
        MissingDependencyError: Zeus is not installed.
        SensorError: Zeus cannot read any device.
    """

    def __init__(self) -> None:
        try:
            from zeus.monitor import ZeusMonitor
        except ImportError as error:
            raise MissingDependencyError(
                "the comparison with Zeus needs the package zeus", hint="pip install zeus"
            ) from error
        try:
            self._monitor: Any = ZeusMonitor()
        except Exception as error:
            raise SensorError(
                "Zeus cannot read any device of this machine", given=str(error), hint="measure without the comparison"
            ) from error
        self.energy_j: dict[str, float] = {}
        """Our name of a device -> joules; empty until the context is left."""

    def __enter__(self) -> Self:
        # By default Zeus synchronizes with torch's GPUs, which the measured program may not use.
        self._monitor.begin_window(_WINDOW, sync_execution=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found = self._monitor.end_window(_WINDOW, sync_execution=False)
        self.energy_j = {f"gpu{index}": float(joules) for index, joules in found.gpu_energy.items()}
        self.energy_j |= {f"cpu{index}": float(joules) for index, joules in (found.cpu_energy or {}).items()}
        self.energy_j |= {f"ram{index}": float(joules) for index, joules in (found.dram_energy or {}).items()}


def differences(metering: Metering, zeus_j: dict[str, float]) -> list[str]:
    """One line for each device that both have read: the joules of both, and their relative difference.

    Args:
        metering: Our measurement.
        zeus_j: Device -> joules that Zeus measured.
    """
    ours = {found.device.name: found.energy_j for found in metering.devices}
    lines = [
        f"{name}: {ours[name]:.2f} J here, {joules:.2f} J by Zeus, {100 * (joules / ours[name] - 1):+.1f} %"
        for name, joules in zeus_j.items()
        if ours.get(name)
    ]
    return lines or ["Zeus and joulecast read no device in common"]
