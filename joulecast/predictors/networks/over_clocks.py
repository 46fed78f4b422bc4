"""The totals of a network at many clocks, with intervals and notes for those that are asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...operations.network import Network
from ..intervals.power_range import power_range_w
from ..operation_predictions import OperationPredictions
from .builder import Conditions, execution_notes, notes_of, spread_of
from .interval import Interval, interval_around
from .knowledge import NetworkKnowledge
from .uncovered import Coverage


class Caveats(NamedTuple):
    """How far to trust a prediction.

    Args:
        interval: Around its totals; None where too few errors are known.
        notes: Warnings, as a prediction carries them.
    """

    interval: Interval | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class OverClocks:
    """Totals of a network at many clocks, one value each.

    Args:
        knowledge: Predicts operations and composes them, on one GPU in one mode.
        network: The network.
        operations: Predictions of its operations at the default clock.
        power_limit_w: Power cap in watts.
        clocks_mhz: Requested graphics clocks in MHz, shape (clocks,).
        shared_mhz: The one clock of the whole network under the power cap, shape (clocks,).
        held_clocks_mhz: Mean clock over device time, shape (clocks,). It is lower than `shared_mhz` if single
            operations were measured to hold a lower clock.
        time_s, energy_j, device_time_s: Seconds, joules and seconds of the device per iteration, shape (clocks,).
        host_time_s: Seconds that the host needs per iteration, at any clock.
    """

    knowledge: NetworkKnowledge
    network: Network
    operations: OperationPredictions
    power_limit_w: float
    clocks_mhz: FloatArray
    shared_mhz: FloatArray
    held_clocks_mhz: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    host_time_s: float

    @cached_property
    def coverage(self) -> Coverage:
        """The part of the network that the totals lack; the same at all clocks."""
        return Coverage.of(self.network, self.operations.source, self.knowledge.name)

    @property
    def missing(self) -> int:
        """Number of operations that are not covered and that the totals lack."""
        return self.operations.source.count("missing")

    def at(self, place: int, level: float) -> Caveats:
        """How far to trust the totals at one of the clocks.

        Args:
            place: Index into `clocks_mhz`.
            level: Share of such networks that should lie within the interval.
        """
        knowledge, cap_w = self.knowledge, self.power_limit_w
        conditions = Conditions(float(self.clocks_mhz[place]), cap_w, knowledge.composition)
        coverage = self.coverage
        spread = spread_of(knowledge, self.network, conditions, self._operations_at(place), coverage)
        notes = (
            *notes_of(knowledge, self.network, conditions, spread, coverage),
            *execution_notes(knowledge, float(self.device_time_s[place]), self.host_time_s),
        )
        if spread is None or not spread.supports(level):
            return Caveats(None, notes)
        totals = float(self.time_s[place]), float(self.energy_j[place]), float(self.held_clocks_mhz[place])
        power_range = power_range_w(knowledge.operations.gpu, cap_w)
        return Caveats(interval_around(spread, level, *totals, power_range), notes)

    def _operations_at(self, place: int) -> OperationPredictions:
        """The operations at one of the clocks. Intervals depend on their shares of device time."""
        work, held_mhz = self.operations.work, float(self.shared_mhz[place])
        if work is None or self.operations.spread is None or held_mhz == work.gpu.boost_clock_mhz:
            return self.operations
        device_s, dynamic_j = work.at(held_mhz)
        clocks = np.minimum(held_mhz, work.most_mhz) + np.zeros_like(device_s)
        return replace(self.operations, device_time_s=device_s, dynamic_energy_j=dynamic_j, held_clock_mhz=clocks)
