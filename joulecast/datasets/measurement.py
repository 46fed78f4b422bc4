"""Measurement and Dataset: what was measured on a GPU, how, and what of it can be used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import DatasetError
from ..hardware import find_gpu
from ..operations.network import Network
from ..operations.operation import Operation
from ..operations.rules import Shape

SCHEMA_VERSION = 3

_ENERGY_TOLERANCE = 0.01  # Relative; energy is a product of two means.
_POWER_OVERSHOOT = 1.2  # Boards exceed their cap for a moment, never on average by more.
_REPORTED = 5


@dataclass(frozen=True)
class Measurement:
    """An operation on one GPU at one clock setting.

    Args:
        operation: What ran.
        time_s: Seconds per iteration of the loop, wall clock.
        power_w: Mean board power over the loop; None where no sensor was read.
        energy_j: Joules per iteration; None without power.
        device_time_s: Seconds that the GPU works, where it was measured without the host (CUDA graph replay).
        time_std_s, power_std_w, energy_std_j: Standard deviations of time, power and energy, where known.
        iterations: Length of the loop.
        duration_s: How long the loop was measured.
        clock_mhz: Mean graphics clock that was held, where known.
        temperature_c: Temperature of the chip at the end in degrees Celsius, where known.
        engine: What called the operation and its version, such as "sglang 0.5.14"; empty for PyTorch alone.
        kernel: Name of the kernel that ran, as the engine writes it, where known.
        sustained: Whether it ran for so long that the power cap held the clock (True), or in a burst (False); None
            where that is not known.
        campaign: The run of the measuring program that it comes from.
        method: How the loop was run; loops of different methods have different host costs.
        started: When, as the source wrote it.
        line: Line of the source file, for messages.
        usable: The measurement is what it says.
        power_usable: Whether its power and energy are usable, too.
        remark: Why not, where not.
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
        network: Name of the model.
        input_shape: Shape of its input, batch first.
        precision: Precision that was asked for ("default", "fp32", ...).
        mode: inference or training.
        clock_mhz: Mean graphics clock that was held, where known.
        operations: What the network consists of, where the source says so; None where its name says enough.
        usable: The measurement is what it says.
        remark: Why not, where not.
    """

    network: str
    input_shape: Shape
    precision: str
    mode: str
    time_s: float
    power_w: float
    energy_j: float
    campaign: str = ""
    line: int | None = None
    clock_mhz: float | None = None
    operations: Network | None = None
    usable: bool = True
    remark: str = ""


@dataclass(frozen=True)
class Card:
    """Provenance of a Dataset.

    Args:
        gpu: Name in the hardware catalogue.
        clock_mhz: The clock that was set and, where the power cap allowed, held; None where the GPU chose.
        source: Publication or campaign that the measurements come from.
        licence: Under which terms.
        method: Measuring method -> how its loop ran.
        accumulates_gradients: Methods whose loop accumulates gradients over its iterations.
        without_host: Methods whose times hold no launch: the host had handed over all work before the clock started.
        sensor: What read the power.
        software: Versions of torch, CUDA and driver, as far as known.
        measured: First and last day.
        power_limit_w: The board's cap when it was measured; None for the catalogue's.
        idle_power_w: What the idle board drew, with a context on it; None where it was not measured.
        limits: What not to trust.
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

    def to_json(self) -> dict[str, Any]:
        """The card as plain lists and dictionaries."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Card:
        """Read what `to_json` wrote.

        Raises:
            DatasetError: Keys are missing or unknown.
        """
        try:
            values: dict[str, Any] = {k: tuple(item) if isinstance(item, list) else item for k, item in value.items()}
            return cls(**values)
        except TypeError as error:
            raise DatasetError(
                "a dataset card has other keys than these", given=", ".join(value), hint=str(error)
            ) from error


@dataclass(frozen=True)
class Dataset:
    """Measurements of one GPU and clock setting, with their provenance.

    Raises:
        DatasetError: A measurement is impossible; the message names the lines.
    """

    card: Card
    measurements: tuple[Measurement, ...]
    networks: tuple[NetworkMeasurement, ...] = ()

    def __post_init__(self) -> None:
        refuse_impossible(self.card, [*self.measurements, *self.networks])

    def usable(self, mode: str) -> list[Measurement]:
        """The measurements of a mode that are what they say."""
        return [m for m in self.measurements if m.usable and m.operation.mode == mode]

    def usable_networks(self, mode: str) -> list[NetworkMeasurement]:
        """The measured networks of a mode that are what they say."""
        return [m for m in self.networks if m.usable and m.mode == mode]

    def campaigns(self, mode: str) -> list[str]:
        """The campaigns that hold usable measurements of a mode."""
        return sorted({m.campaign for m in self.usable(mode)})


def _fault(time_s: float, power_w: float | None, energy_j: float | None, most_w: float) -> str | None:
    if not (math.isfinite(time_s) and time_s > 0):
        return f"time {time_s} s is not positive"
    if (power_w is None) != (energy_j is None):
        return "power and energy are only known together"
    if power_w is None or energy_j is None:
        return None
    if not (math.isfinite(power_w) and 0 < power_w <= most_w):
        return f"power {power_w} W is outside 0 to {most_w:g} W (1.2 x the board's cap)"
    expected = power_w * time_s
    if not math.isfinite(energy_j) or abs(energy_j - expected) > _ENERGY_TOLERANCE * expected:
        return f"energy {energy_j} J is not power x time ({expected:.6g} J)"
    return None


def refuse_impossible(card: Card, rows: Sequence[Measurement | NetworkMeasurement]) -> None:
    """Raise for measurements that cannot be, naming their lines.

    Raises:
        DatasetError: Time is not positive, power exceeds 1.2 x the cap, or energy is not power x time.
        UnknownNameError: There is power, the card says no cap, and the GPU is not in the catalogue.
    """
    most_w = math.inf
    if any(row.power_w is not None for row in rows):
        most_w = _POWER_OVERSHOOT * (card.power_limit_w or find_gpu(card.gpu).power_limit_w)
    faults = [
        f"line {row.line if row.line is not None else position}: {fault}"
        for position, row in enumerate(rows, start=1)
        if (fault := _fault(row.time_s, row.power_w, row.energy_j, most_w)) is not None
    ]
    if faults:
        refuse_lines(faults, card.gpu)


def refuse_lines(faults: list[str], where: str) -> None:
    """Raise one error for all the lines of a dataset that are wrong.

    Raises:
        DatasetError: Always.
    """
    shown = "; ".join(faults[:_REPORTED]) + (f"; and {len(faults) - _REPORTED} more" if len(faults) > _REPORTED else "")
    raise DatasetError(
        f"{len(faults)} impossible measurements of {where}",
        given=shown,
        allowed="time > 0, 0 < power <= 1.2 x cap, energy = power x time, known operations",
        hint="correct or remove these lines",
    )
