"""A network on a GPU under a power cap, with everything found out that no clock changes.

What operations do at the default clock takes features and regressors, and is most of the work of a prediction; the
clock law (clock.py) takes it to any other clock in a few operations on arrays. Whoever asks for several clocks of a
network, as the service does, keeps this between them, and reads what `NetworkPredictor.predict` says of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError
from ...operations.network import Network
from ..any_gpu.predictor import AnyGpuPredictor
from ..operation_predictions import OperationPredictions, Source
from ..physics.energy import static_power_w
from .composition import Totals, compose, counts_of, plain_sum
from .gradients import as_parts
from .network_predictor import NetworkPredictor
from .prediction import COMPOSITIONS, Bound, OperationCost, Prediction


@dataclass(frozen=True)
class Costs:
    """What the operations of a network cost, as columns in their order; see `OperationCost`."""

    device_time_s: list[float | None]
    power_w: list[float | None]
    energy_j: list[float | None]
    source: tuple[Source, ...]
    bound_by: list[Bound]

    @classmethod
    def made(
        cls, counts: FloatArray, predictions: OperationPredictions, totals: Totals, bounds: Iterable[Bound]
    ) -> Self:
        """Share what a network takes among its operations.

        Args:
            counts: Calls of each.
            predictions: Of each.
            totals: Of all.
            bounds: What decides the time of each.
        """
        device_s = counts * predictions.device_time_s
        dynamic_w = predictions.dynamic_energy_j / np.maximum(predictions.device_time_s, 1e-15)
        # What is not dynamic is shared by device time, so that the parts sum up to the whole.
        dynamic_j = counts * predictions.dynamic_energy_j
        dynamic_sum_j = float(np.nansum(dynamic_j))
        scale = min(1.0, totals.energy_j / max(dynamic_sum_j, 1e-300))
        shared_j = totals.energy_j - scale * dynamic_sum_j
        energy_j = scale * dynamic_j + shared_j * device_s / max(float(np.nansum(device_s)), 1e-300)
        columns = [values.tolist() for values in (device_s, predictions.static_power_w + dynamic_w, energy_j)]
        if "missing" in predictions.source:
            missing = [source == "missing" for source in predictions.source]
            columns = [[None if m else value for m, value in zip(missing, c, strict=True)] for c in columns]
        return cls(columns[0], columns[1], columns[2], predictions.source, list(bounds))

    def of(self, network: Network) -> Iterator[OperationCost]:
        """The same, one for each operation of the network."""
        columns = (self.device_time_s, self.power_w, self.energy_j, self.source, self.bound_by)
        for entry, *values in zip(network, *columns, strict=True):
            yield OperationCost(entry.operation, entry.count, entry.module_paths, *values)


@dataclass(frozen=True)
class PreparedNetwork:
    """See the module.

    Args:
        predictor: Of a GPU and mode.
        network: Operations of that mode.
        power_limit_w: Power cap.
        notes: What to keep in mind about the network on this GPU, beside what its predictor says.
    """

    predictor: NetworkPredictor
    network: Network
    power_limit_w: float
    notes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration."""
        return counts_of(self.network)

    @cached_property
    def at_default(self) -> OperationPredictions:
        """The operations as parts of this network, at the default clock."""
        operations = self.predictor.operations
        if isinstance(operations, AnyGpuPredictor):
            # (the network settles at one clock, so nobody needs to search for that of each operation)
            found = operations.uncapped(self.network.operations)
        else:
            found = operations.predict(self.network.operations, None, self.power_limit_w)
        return as_parts(self.network, operations.in_network(found, self.counts))

    @cached_property
    def static(self) -> float:
        """Board power while the GPU waits over that of physics; the same at all clocks."""
        gpu = self.predictor.operations.gpu
        return self.at_default.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))

    @cached_property
    def _source_elsewhere(self) -> tuple[Source, ...]:
        return tuple("modelled" if source == "measured" else source for source in self.at_default.source)

    def at(self, clock_mhz: float | None = None, *, composition: str | None = None, strict: bool = False) -> Prediction:
        """Predict one iteration at a graphics clock; see `NetworkPredictor.predict`.

        Raises:
            InputError, UncoveredError: See `NetworkPredictor.predict`.
        """
        summary, costs = self.summary(clock_mhz, composition=composition, strict=strict)
        return replace(summary, operations=tuple(costs.of(self.network)))

    def summary(
        self, clock_mhz: float | None = None, *, composition: str | None = None, strict: bool = False
    ) -> tuple[Prediction, Costs]:
        """The same as a prediction without its operations, and their costs beside it; see `at`.

        Raises:
            InputError, UncoveredError: See `NetworkPredictor.predict`.
        """
        predictor, counts, cap_w = self.predictor, self.counts, self.power_limit_w
        chosen = composition or predictor.composition
        if chosen not in COMPOSITIONS:
            raise InputError("unknown composition", given=repr(chosen), allowed=", ".join(COMPOSITIONS))
        clock = predictor.operations.gpu.checked_clock_mhz(clock_mhz)
        if chosen == "overlap":
            predictions = self._in_network(clock)
            predictor.refuse_uncovered(self.network, predictions, strict)
            predictions = predictions.together(counts, predictor.host.calls_s(predictions), clock, cap_w)
            totals = compose(counts, predictions, predictor.host, cap_w)
        else:
            predictions = predictor.operations.predict(self.network.operations, clock, cap_w)
            predictor.refuse_uncovered(self.network, predictions, strict)
            totals = plain_sum(counts, predictions)
        summary = predictor.summary(self.network, predictions, totals, clock, cap_w, chosen)
        costs = Costs.made(counts, predictions, totals, predictor.bounds(predictions, clock))
        held_mhz = _held_mhz(counts, predictions, clock)
        notes = (*summary.notes, *self.notes, *self._beyond_the_cap(totals, held_mhz))
        return replace(summary, held_clock_mhz=held_mhz, notes=notes), costs

    def _beyond_the_cap(self, totals: Totals, held_mhz: float) -> Iterator[str]:
        """Where no clock is low enough a GPU has to pause, which no dataset shows and the clock law does not know."""
        gpu, cap_w = self.predictor.operations.gpu, self.power_limit_w
        at_cap = cap_w < gpu.power_limit_w and totals.energy_j > 0.999 * cap_w * totals.time_s
        if at_cap and held_mhz < 1.01 * gpu.min_clock_mhz:
            yield f"at its lowest clock, {gpu.min_clock_mhz} MHz, it would draw more than this cap: it takes longer"

    def _in_network(self, clock_mhz: float) -> OperationPredictions:
        """The operations before they settle at one clock; of loops, which networks do not ask for, those at default."""
        gpu, found = self.predictor.operations.gpu, self.at_default
        if clock_mhz == gpu.boost_clock_mhz:
            return found
        if found.work is None:  # (a predictor without the clock law)
            operations = self.predictor.operations
            there = operations.predict(self.network.operations, clock_mhz, self.power_limit_w)
            return as_parts(self.network, operations.in_network(there, self.counts))
        static_w = self.static * float(static_power_w(gpu, clock_mhz))
        return replace(found, source=self._source_elsewhere, static_power_w=static_w)


def _held_mhz(counts: FloatArray, predictions: OperationPredictions, clock_mhz: float) -> float:
    busy_s = counts * np.nan_to_num(predictions.device_time_s)
    if not busy_s.sum():
        return clock_mhz
    # (rounded, or an average of equal clocks would not be that clock)
    return round(float((busy_s * np.nan_to_num(predictions.held_clock_mhz)).sum() / busy_s.sum()), 6)
