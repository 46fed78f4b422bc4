"""A network at many clocks at once: operations are predicted once, and the clock law is applied to arrays of clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...operations.network import Network
from ..intervals.power_range import power_range_w
from ..operation_predictions import OperationPredictions
from ..physics.clock import Work
from ..physics.energy import static_power_w
from .builder import Conditions, execution_notes, notes_of, spread_of
from .composition import overlap
from .interval import Interval, interval_around
from .knowledge import NetworkKnowledge
from .network_predictor import NetworkPredictor
from .prepared import PreparedNetwork
from .uncovered import Coverage

_MOST_VALUES = 200_000  # Values of one array (operations times clocks) that are computed at once: 1.6 MB.


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


def predict_over_clocks(
    predictor: NetworkPredictor,
    network: Network,
    clocks_mhz: Iterable[float],
    power_limit_w: float | None = None,
) -> OverClocks:
    """Predict a network at many clocks, as `NetworkPredictor.predict` does at each.

    Args:
        predictor: The predictor of a GPU and mode.
        network: A network in that mode.
        clocks_mhz: Graphics clocks, at least one.
        power_limit_w: Power cap; None for the board's default.

    Returns:
        NaN everywhere if nothing of the network is covered.

    Raises:
        InputError: Another mode, or a clock or a cap that the GPU cannot hold.
    """
    return over_clocks(predictor.prepared(network, power_limit_w), clocks_mhz)


def over_clocks(prepared: PreparedNetwork, clocks_mhz: Iterable[float]) -> OverClocks:
    """Predict a prepared network at many clocks; see `predict_over_clocks`.

    Raises:
        InputError: See `predict_over_clocks`.
    """
    knowledge, network, cap_w, counts = prepared.knowledge, prepared.network, prepared.power_limit_w, prepared.counts
    clocks = np.array(list(clocks_mhz), dtype=float)
    for clock in (clocks.min(), clocks.max()):
        knowledge.operations.gpu.checked_clock_mhz(float(clock))
    predictions = prepared.at_default
    host_s = knowledge.host.total_s(counts, predictions)
    gaps_s = knowledge.host.gaps_s(float(counts.sum()), network.mode)
    if predictions.source.count("missing") == len(network):
        values = np.full((5, len(clocks)), np.nan)
    elif predictions.work is None or knowledge.composition != "overlap":
        each = [prepared.at(float(clock)) for clock in clocks]
        totals = [(one.held_clock_mhz, one.time_s, one.known_energy_j, one.device_time_s) for one in each]
        values = np.column_stack([clocks, np.array(totals, dtype=float)]).T
    else:
        pieces = np.array_split(clocks, min(len(clocks), -(-len(clocks) * len(counts) // _MOST_VALUES)))
        work, static = predictions.work, prepared.static
        parts = [_composed(counts, work, host_s, gaps_s, static, piece, cap_w) for piece in pieces]
        values = np.concatenate(parts, axis=1)
    shared, held, time_s, energy_j, device_s = values
    return OverClocks(knowledge, network, predictions, cap_w, clocks, shared, held, time_s, energy_j, device_s, host_s)


def _composed(
    counts: FloatArray,
    work: Work,
    host_s: float,
    gaps_s: float,
    static: float,
    clocks_mhz: FloatArray,
    cap_w: float,
) -> FloatArray:
    """Shared and held clock, seconds, joules, device seconds at each clock; see `OperationPredictions.together`."""
    shared_mhz = work.held_together_mhz(counts, clocks_mhz, cap_w, host_s, static)
    by_operation_s, by_operation_j = work.at(shared_mhz[:, None])
    device_s, dynamic_j = np.nansum(counts * by_operation_s, axis=1), np.nansum(counts * by_operation_j, axis=1)
    busy_s, device_s = device_s, device_s + gaps_s
    static_w = static * static_power_w(work.gpu, shared_mhz)
    time_s, energy_j = overlap(device_s, host_s, dynamic_j, static_w, cap_w)
    held = shared_mhz
    if np.any(np.asarray(work.most_mhz) < shared_mhz.max()):
        each_mhz = np.minimum(shared_mhz[:, None], work.most_mhz)
        held = np.nansum(counts * by_operation_s * each_mhz, axis=1) / np.maximum(busy_s, 1e-300)
    # Rounded, or an average of equal clocks would not be that clock.
    held = np.where(busy_s > 0, np.round(held, 6), clocks_mhz)
    return np.array([shared_mhz, held, time_s, energy_j, device_s])
