"""Intervals around the totals of a predicted network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..intervals.conformal import within_range
from ..intervals.network_spread import NetworkSpread, SentNetworkSpread


@dataclass(frozen=True)
class Interval:
    """Low and high of each quantity, for a share `level` of networks like those that were left out.

    Power, energy and energy-delay product are None where the device's power was not measured.
    """

    level: float
    time_s: tuple[float, float]
    power_w: tuple[float, float] | None = None
    energy_j: tuple[float, float] | None = None
    edp_js: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The interval as plain lists; quantities in SI units."""
        return {
            "level": self.level,
            **{name: None if ends is None else list(ends) for name, ends in self._quantities().items()},
        }

    def _quantities(self) -> dict[str, tuple[float, float] | None]:
        return {"time_s": self.time_s, "power_w": self.power_w, "energy_j": self.energy_j, "edp_js": self.edp_js}


def interval_around(
    spread: NetworkSpread | SentNetworkSpread | None,
    level: float,
    time_s: float,
    energy_j: float | None,
    held_clock_mhz: float | None,
    power_range_w: tuple[float, float],
) -> Interval | None:
    """The interval around predicted totals; None where no errors are known.

    Args:
        spread: Errors on similar networks; None if there are none.
        level: Share of such networks that should lie within, above 0 and below 1.
        time_s: Predicted seconds per iteration.
        energy_j: Predicted joules per iteration; None where the device's power was not measured.
        held_clock_mhz: Graphics clock that the GPU settles at; None on a CPU.
        power_range_w: Least and most power that the board can draw.

    Raises:
        InputError: The level is too high for the number of networks that errors are known of.
    """
    if spread is None:
        return None
    if energy_j is None:
        return Interval(level, spread.around("time", time_s, level, held_clock_mhz))
    power_w = energy_j / time_s
    values = {"time": time_s, "power": power_w, "energy": energy_j, "edp": energy_j * time_s}
    found = {name: spread.around(name, value, level, held_clock_mhz) for name, value in values.items()}
    low_w, high_w = found["power"]
    low_w, high_w = within_range(low_w, power_w, high_w, power_range_w)
    return Interval(level, found["time"], (float(low_w), float(high_w)), found["energy"], found["edp"])
