"""Intervals of one network prediction, from what was looked up for it in the errors of network_calibration.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Self

import numpy as np

from ...arrays import FloatArray
from ...operations.operation_list import OperationList
from ...rendering.answers import Plain
from .conformal import conformal_error, conformal_rank, within_range
from .network_calibration import NetworkCalibration, shares_of
from .operation_spread import OperationSpread, PredictedOperations
from .widening import BASIS, CLOCK_ERRORS, LEAST_LEVEL, clock_error, least_half_width, never_measured, octaves

FAR_SHARE = 0.2
"""A network is far outside the training data if this share of its device time is in operations that are."""


@dataclass(frozen=True)
class Interval(Plain):
    """Low and high of each quantity, for a share `level` of networks like those that were left out.

    Power, energy and energy-delay product are None where the device's power was not measured.
    """

    level: float
    time_s: tuple[float, float]
    power_w: tuple[float, float] | None = None
    energy_j: tuple[float, float] | None = None
    edp_js: tuple[float, float] | None = None


@dataclass(frozen=True)
class NetworkSpread:
    """Errors on networks that were left out, looked up for one prediction: few numbers, small enough to be sent.

    Args:
        scores: Quantity -> sorted absolute log errors on networks, in units of their difficulty.
        units: Quantity -> the difficulty of this network.
        missing_share: Share of the network's FLOPs, or bytes if that is more, that is in no total.
        far_outside: Whether much of the device time is in operations far outside the training data.
        basis: Where the errors come from, in words.
        measured_mhz: The clock that was measured, if that is another than was asked for.
        unconfirmed_share: Share of the device time that effects add which few measurements show (effects.toml).
        never_measured_kinds: Kinds that make the interval wider because no dataset has measured them (widening.py).
    """

    scores: Mapping[str, FloatArray | tuple[float, ...]]
    units: Mapping[str, float]
    missing_share: float
    far_outside: bool
    basis: str
    measured_mhz: float | None
    unconfirmed_share: float = 0.0
    never_measured_kinds: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        networks: NetworkCalibration,
        composition: str,
        operations: OperationSpread | None,
        counts: FloatArray,
        predictions: PredictedOperations,
        *,
        missing_share: float,
        measured_mhz: float | None,
        unconfirmed_share: float = 0.0,
    ) -> Self:
        """Look errors up for a network.

        The errors of its operations are None where the networks' errors are counted without difficulty. Counts are the
        calls of each operation in one iteration, shape (operations,).
        """
        scores, asked = networks.scores[composition], predictions.operations
        shares, known = shares_of(counts, predictions)
        if operations is None:
            never, far_outside = OperationList.of(asked).derived(never_measured), False
            share = float(shares[never[known]].sum())
            if not _supports(LEAST_LEVEL, len(scores["time"]), measured_mhz):
                share = 0.0
            units = {quantity: _unit(quantity, share, errors) for quantity, errors in scores.items()}
        else:
            never = operations.looked_up(asked).never_measured
            units = networks.difficulty_of(shares, known, operations.sigmas(asked))
            device_s = np.nan_to_num(counts * predictions.device_time_s)
            far_s = float(device_s[operations.far_outside(asked)].sum())
            far_outside = far_s > FAR_SHARE * float(device_s.sum())
        basis = [networks.basis]
        if measured_mhz is not None:
            basis.append(f"what another clock adds: {BASIS}")
        if unconfirmed_share:
            basis.append("what effects add that few networks showed: counted as an error")
        if missing_share:
            basis.append("what is missing: as much time and energy per FLOP or byte as the rest")
        kinds = (f"{o.kind} in fp64" if o.precision == "fp64" else o.kind for o in compress(asked, never))
        return cls(
            scores,
            {quantity: float(unit) for quantity, unit in units.items()},
            missing_share,
            far_outside,
            "; ".join(basis),
            measured_mhz,
            unconfirmed_share,
            tuple(dict.fromkeys(kinds)),
        )

    def supports(self, level: float) -> bool:
        """Whether there are enough errors for a level. Raises InputError: the level is not between 0 and 1."""
        return _supports(level, len(self.scores["time"]), self.measured_mhz)

    def around(self, quantity: str, value: float, level: float, held_mhz: float | None) -> tuple[float, float]:
        """Low and high of a quantity, for a prediction with this held clock.

        Raises InputError: the level is not between 0 and 1, or higher than the errors support.
        """
        half = conformal_error(self.scores[quantity], level, "measured networks") * self.units[quantity]
        if self.measured_mhz is not None and held_mhz is not None:
            half = float(np.hypot(half, clock_error(quantity, level, octaves(held_mhz, self.measured_mhz))))
        # Missing work can only increase the totals, so that only the upper end moves. What few measurements show may be
        # absent elsewhere, or twice as much: both ends move by it.
        more = {"time": 1, "energy": 1, "edp": 2, "power": 0}[quantity]
        half = math.hypot(half, more * math.log(1 - self.unconfirmed_share))
        return value / math.exp(half), value * math.exp(half) / (1 - self.missing_share) ** more

    def interval(
        self,
        level: float,
        time_s: float,
        energy_j: float | None,
        held_clock_mhz: float | None,
        power_range_w: tuple[float, float],
    ) -> Interval:
        """The interval around predicted totals.

        The joules are None where the device's power was not measured, the held clock is None on a CPU, and the range is
        that of the watts which the board can draw. Raises InputError: the level is too high for the number of networks
        that errors are known of.
        """
        if energy_j is None:
            return Interval(level, self.around("time", time_s, level, held_clock_mhz))
        power_w = energy_j / time_s
        values = {"time": time_s, "power": power_w, "energy": energy_j, "edp": energy_j * time_s}
        found = {name: self.around(name, value, level, held_clock_mhz) for name, value in values.items()}
        low_w, high_w = found["power"]
        low_w, high_w = within_range(low_w, power_w, high_w, power_range_w)
        return Interval(level, found["time"], (float(low_w), float(high_w)), found["energy"], found["edp"])


def _supports(level: float, count: int, measured_mhz: float | None) -> bool:
    """Whether so many errors on networks, and those of other clocks where one is asked for, support a level."""
    known = [count, *([] if measured_mhz is None else [len(CLOCK_ERRORS["time"])])]
    return all(conformal_rank(level, each) <= each for each in known)


def _unit(quantity: str, never_measured_share: float, errors: FloatArray) -> float:
    """Factor that widens errors without difficulty. Errors of all unmeasured kinds are taken to be the same."""
    if not never_measured_share:
        return 1.0
    widest = conformal_error(errors, LEAST_LEVEL, "measured networks")
    return max(1.0, never_measured_share * least_half_width(quantity, LEAST_LEVEL) / widest)
