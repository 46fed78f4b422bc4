"""A network on a GPU under a power cap, with everything computed that does not depend on the clock.

Most of the work of a prediction is the cost of operations at the default clock, which needs features and regressors.
The clock law (physics/clock.py) then derives the cost at any other clock with a few array operations. Code that
predicts one network at several clocks, such as the service, therefore stores a PreparedNetwork and calls it for each
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ..contract import PredictsOperations
from ..operation_predictions import OperationPredictions, Source
from ..physics.cached import cached
from ..physics.energy import static_power_w
from .builder import Conditions, build_prediction, refuse_uncovered
from .compiled import as_compiled
from .composition import Totals, compose, counts_of, plain_sum
from .knowledge import NetworkKnowledge
from .memory import MemoryNeed, memory_need
from .parts import as_parts
from .prediction import COMPOSITIONS, Composition, Prediction

# Two networks on every GPU of the catalogue, as a search over GPUs and precisions asks for. A network of 60 operations
# takes 15 kB.
_CACHED_NETWORKS = 128


@dataclass(frozen=True)
class PreparedNetwork:
    """A network that can be predicted at one clock after the other.

    Args:
        knowledge: Predicts operations and composes them, on one GPU in one mode.
        network: Operations of that mode.
        power_limit_w: Power cap in watts.
        notes: Warnings about the network on this GPU, in addition to those that every prediction carries.
        known: Predictions of its operations at the default clock, if they are computed already; None to compute them.
    """

    knowledge: NetworkKnowledge
    network: Network
    power_limit_w: float
    notes: tuple[str, ...] = ()
    known: OperationPredictions | None = None

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration, shape (operations,)."""
        return counts_of(self.network)

    @cached_property
    def memory(self) -> MemoryNeed | None:
        """Device memory that the network needs, estimated; None for a list of operations.

        The tensors of a list of operations need not be in memory at the same time.
        """
        return None if self.network.input_shape is None else memory_need(self.network)

    @cached_property
    def at_default(self) -> OperationPredictions:
        """The operations as parts of this network, at the default clock."""
        operations = self.knowledge.operations
        if self.known is None and operations.same_in_all_networks:
            return self._as_run(_in_any_network(self.network.operations, operations, self.power_limit_w))
        found = self.known or _for_network(self.network.operations, operations, self.power_limit_w)
        return self._as_run(operations.in_network(found, self.counts))

    def _as_run(self, found: OperationPredictions) -> OperationPredictions:
        """Operations as parts of this network, in the way in which the network is run (eager, graph or compiled)."""
        gpu = self.knowledge.operations.gpu
        parts = as_parts(self.network, found, gpu)
        return as_compiled(self.network, parts, gpu) if self.knowledge.host.execution.name == "compiled" else parts

    @cached_property
    def static(self) -> float:
        """Board power of the waiting GPU over `static_power_w` of physics; the same factor at all clocks."""
        gpu = self.knowledge.operations.gpu
        return self.at_default.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))

    @cached_property
    def _source_at_other_clocks(self) -> tuple[Source, ...]:
        return tuple("modelled" if source == "measured" else source for source in self.at_default.source)

    def at(self, clock_mhz: float | None = None, *, composition: str | None = None, strict: bool = False) -> Prediction:
        """Predict one iteration at a graphics clock; see `NetworkPredictor.predict`.

        Raises:
            InputError, UncoveredError: See `NetworkPredictor.predict`.
        """
        conditions, predictions, totals = self.composed(clock_mhz, composition=composition, strict=strict)
        needed = None if self.memory is None else self.memory.total_bytes
        return build_prediction(self.knowledge, self.network, conditions, predictions, totals, needed, self.notes)

    def composed(
        self, clock_mhz: float | None = None, *, composition: str | None = None, strict: bool = False
    ) -> tuple[Conditions, OperationPredictions, Totals]:
        """The parts from which `at` builds a prediction: conditions, operations at the held clock, and totals.

        Raises:
            InputError, UncoveredError: See `NetworkPredictor.predict`.
        """
        knowledge, counts, cap_w = self.knowledge, self.counts, self.power_limit_w
        conditions = Conditions(
            knowledge.operations.gpu.checked_clock_mhz(clock_mhz),
            cap_w,
            knowledge.composition if composition is None else checked_composition(composition),
        )
        if conditions.composition == "overlap":
            predictions = self._in_network(conditions.clock_mhz)
            refuse_uncovered(knowledge, self.network, predictions, strict)
            host_s = knowledge.host.total_s(counts, predictions)
            predictions = predictions.together(counts, host_s, conditions.clock_mhz, cap_w)
            totals = compose(counts, predictions, knowledge.host, cap_w)
        else:
            predictions = knowledge.operations.predict(self.network.operations, conditions.clock_mhz, cap_w)
            refuse_uncovered(knowledge, self.network, predictions, strict)
            totals = plain_sum(counts, predictions)
        return conditions, predictions, totals

    def _in_network(self, clock_mhz: float) -> OperationPredictions:
        """The operations at a clock, before they settle at the clock that the power cap allows.

        Time, power and energy of measurement loops stay those at the default clock, because networks do not use them.
        """
        gpu, found = self.knowledge.operations.gpu, self.at_default
        if clock_mhz == gpu.boost_clock_mhz:
            return found
        if found.work is None:  # A predictor without the clock law.
            operations = self.knowledge.operations
            there = operations.predict(self.network.operations, clock_mhz, self.power_limit_w)
            return self._as_run(operations.in_network(there, self.counts))
        static_w = self.static * float(static_power_w(gpu, clock_mhz))
        return replace(found, source=self._source_at_other_clocks, static_power_w=static_w)


@cached(_CACHED_NETWORKS)
def _in_any_network(
    operations: OperationList, predictor: PredictsOperations, power_limit_w: float
) -> OperationPredictions:
    """Operations as parts of a network, of a predictor for which these are the same in every network."""
    found = predictor.predict_for_network(operations, power_limit_w)
    return predictor.in_network(found, np.ones(len(operations)))


@cached(_CACHED_NETWORKS)
def _for_network(
    operations: OperationList, predictor: PredictsOperations, power_limit_w: float
) -> OperationPredictions:
    """See `PredictsOperations.predict_for_network`."""
    return predictor.predict_for_network(operations, power_limit_w)


def checked_composition(name: str) -> Composition:
    """The composition of this name.

    Raises:
        InputError: There is none.
    """
    for known in COMPOSITIONS:
        if name == known:
            return known
    raise InputError("unknown composition", given=repr(name), allowed=", ".join(COMPOSITIONS))
