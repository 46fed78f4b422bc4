"""Measurement and Dataset: what was measured on a GPU, how, and which of it is usable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import DatasetError
from ..hardware import find_gpu
from ..hardware.host import is_cpu
from ..operations.network import Network
from ..operations.operation import Operation
from ..operations.rules import Shape

SCHEMA_VERSION = 4

_ENERGY_TOLERANCE = 0.01  # Relative tolerance, because energy is the product of two means.
_POWER_OVERSHOOT = 1.2  # Boards exceed their cap for moments, but never by more than this on average.
_REPORTED = 5


@dataclass(frozen=True)
class Measurement:
    """An operation on one GPU at one clock setting.

    Args:
        time_s: Seconds per iteration of the loop, wall clock.
        power_w: Mean board power over the loop; None where no sensor was read.
        energy_j: Joules per iteration; None without power.
        device_time_s: Seconds that the GPU works, where that was measured without the host (CUDA graph replay).
        time_std_s, power_std_w, energy_std_j: Standard deviations of time, power and energy, where known. Campaigns of
            `joulecast collect` state the standard error of the time, the spread of the power readings, and both
            propagated to the energy.
        clock_mhz: Mean graphics clock that was held, where known.
        temperature_c: Temperature of the chip at the end in degrees Celsius, where known.
        engine: Program that called the operation, with its version, such as "sglang 0.5.14"; empty for PyTorch alone.
        kernel: Name of the kernel that ran, as the engine writes it, where known.
        sustained: Whether it ran for so long that the power cap held the clock (True), or in a burst (False); None
            where that is not known.
        method: How the loop was run; loops of different methods have different host costs.
        started: Date and time of the measurement, as the source wrote it.
    """

    operation: Operation
    time_s: float
    power_w: float | None
    energy_j: float | None
    device_time_s: float | None = None
    time_std_s: float | None = None
    power_std_w: float | None = None
    energy_std_j: float | None = None
    iterations: int | None = None
    duration_s: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    engine: str = ""
    kernel: str = ""
    sustained: bool | None = None
    campaign: str = ""
    method: str = ""
    started: str = ""
    line: int | None = None
    usable: bool = True
    power_usable: bool = True
    remark: str = ""


@dataclass(frozen=True)
class NetworkMeasurement:
    """A whole network, measured as an operation is, to check predictions against.

    Args:
        precision: Requested precision ("default", "fp32", ...).
        operations: Operations of the network, where the source lists them; None where its name identifies it.
    """

    network: str
    input_shape: Shape
    precision: str
    mode: str
    time_s: float
    power_w: float | None
    energy_j: float | None
    campaign: str = ""
    line: int | None = None
    clock_mhz: float | None = None
    operations: Network | None = None
    usable: bool = True
    remark: str = ""

    @property
    def known_power_w(self) -> float:
        """Mean power over the loop. Raises DatasetError: it was not measured."""
        return self._known("power", self.power_w)

    @property
    def known_energy_j(self) -> float:
        """Joules per iteration. Raises DatasetError: they were not measured."""
        return self._known("energy", self.energy_j)

    def _known(self, quantity: str, value: float | None) -> float:
        if value is None:
            raise DatasetError(
                f"the {quantity} of this network was not measured",
                given=f"{self.network}, {self.input_shape}",
                allowed="a network that was measured with its power",
                hint="collect it again on a machine whose power sensor can be read",
            )
        return value


@dataclass(frozen=True)
class Card:
    """Provenance of a Dataset.

    Args:
        gpu: Name in the hardware catalogue, or that of a CPU; see `joulecast.hardware.host.cpu_name`.
        clock_mhz: The clock that was set and, where the power cap allowed, held; None where the GPU chose.
        method: Measuring method -> description of its loop.
        accumulates_gradients: Methods whose loop accumulates gradients over its iterations.
        without_host: Methods whose times include no launches, because the host issued all work before timing began.
        power_limit_w: The board's power cap during the measurements; None for the catalogue's, and for a CPU whose cap
            is not known.
        idle_power_w: Power of the idle board with a CUDA context; None where it was not measured.
        threads: Threads that PyTorch used on a CPU; None on a GPU.
        load_average: On a CPU the least, median and most one-minute load average of the machine during the
            measurements, which is about the number of threads that were running; empty where it is not known.
    """

    gpu: str
    clock_mhz: float | None
    source: str
    licence: str
    method: Mapping[str, str]
    accumulates_gradients: tuple[str, ...] = ()
    without_host: tuple[str, ...] = ()
    sensor: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[str, str] = ("", "")
    power_limit_w: float | None = None
    idle_power_w: float | None = None
    limits: tuple[str, ...] = ()
    threads: int | None = None
    load_average: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The card as plain lists and dictionaries; what only CPUs have is left out where there is none."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {name: value for name, value in values.items() if value or name not in ("threads", "load_average")}
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Card:
        """Read what `to_dict` wrote. Raises TypeError: keys are missing or unknown."""
        values: dict[str, Any] = {k: tuple(item) if isinstance(item, list) else item for k, item in value.items()}
        return cls(**values)


@dataclass(frozen=True)
class Dataset:
    """Measurements of one GPU and clock setting, with their provenance. Impossible ones are a DatasetError."""

    card: Card
    measurements: tuple[Measurement, ...]
    networks: tuple[NetworkMeasurement, ...] = ()

    def __post_init__(self) -> None:
        rows: list[Measurement | NetworkMeasurement] = [*self.measurements, *self.networks]
        most_w = math.inf
        # The energy counters of a CPU come without a cap.
        cap_known = self.card.power_limit_w is not None or not is_cpu(self.card.gpu)
        if cap_known and any(row.power_w is not None for row in rows):
            most_w = _POWER_OVERSHOOT * (self.card.power_limit_w or find_gpu(self.card.gpu).power_limit_w)
        faults = [
            f"line {row.line if row.line is not None else position}: {fault}"
            for position, row in enumerate(rows, start=1)
            if (fault := _fault(row.time_s, row.power_w, row.energy_j, most_w)) is not None
        ]
        refuse_lines(faults, self.card.gpu)

    def usable(self, mode: str) -> list[Measurement]:
        """The usable measurements of a mode."""
        return [m for m in self.measurements if m.usable and m.operation.mode == mode]

    def usable_networks(self, mode: str) -> list[NetworkMeasurement]:
        """The usable measurements of networks in a mode."""
        return [m for m in self.networks if m.usable and m.mode == mode]

    def networks_with_energy(self, mode: str) -> list[NetworkMeasurement]:
        """The usable measurements of networks in a mode whose power was measured."""
        return [m for m in self.usable_networks(mode) if m.energy_j is not None]

    def campaigns(self, mode: str) -> list[str]:
        """The campaigns that hold usable measurements of a mode."""
        return sorted({m.campaign for m in self.usable(mode)})


def _fault(time_s: float, power_w: float | None, energy_j: float | None, most_w: float) -> str | None:
    if not (math.isfinite(time_s) and time_s > 0):
        return f"time {time_s} s is not positive"
    if (power_w is None) != (energy_j is None):
        return "power and energy must be given together"
    if power_w is None or energy_j is None:
        return None
    if not (math.isfinite(power_w) and 0 < power_w <= most_w):
        return f"power {power_w} W is outside 0 to {most_w:g} W (1.2 x the board's cap)"
    expected = power_w * time_s
    if not math.isfinite(energy_j) or abs(energy_j - expected) > _ENERGY_TOLERANCE * expected:
        return f"energy {energy_j} J is not power x time ({expected:.6g} J)"
    return None


def refuse_lines(faults: list[str], where: str) -> None:
    """Raise one DatasetError that names the lines of a dataset that are wrong, if any are."""
    if not faults:
        return
    shown = "; ".join(faults[:_REPORTED]) + (f"; and {len(faults) - _REPORTED} more" if len(faults) > _REPORTED else "")
    raise DatasetError(
        f"{len(faults)} impossible measurements of {where}",
        given=shown,
        allowed="time > 0, 0 < power <= 1.2 x cap, energy = power x time, known operations",
        hint="correct or remove these lines",
    )
