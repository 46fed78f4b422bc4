"""Networks on GPUs under power caps: what does not depend on the clock, and their totals at clocks, composed together.

Most of the work of a prediction is the cost of operations at the default clock, which needs features and regressors.
The clock law (physics/clock.py) then derives the cost at any other clock with a few array operations, for all networks,
GPUs and clocks that are asked for together. A single network at one clock is a batch of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError, named
from ...operations.attributes import ELEMENT_BYTES
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ...progress import paced
from ..intervals.network_calibration import NetworkCalibration, shares_of
from ..operation_predictions import OperationPredictions
from ..physics.cached import cached
from ..physics.energy import static_power_w
from ..physics.power_cap import Jobs
from ..predictor import OperationPredictor
from .composition import HostModel, composed, counts_of, plain_sum
from .costs import Coverage
from .memory import memory_need
from .parts import as_compiled, as_parts
from .prediction import Composition

_SHOWN_OPERATIONS = 3
_AT_ONCE = 8_000  # Operations times GPUs that are predicted together: more take memory, and no less time each.
_MAJORITY = 0.5  # Share of the device time in 16 bits and less from which a network counts as one in half precision.


@dataclass(frozen=True, eq=False)
class NetworkKnowledge:
    """A predictor of single operations, and everything else that is needed to compose networks from them.

    Args:
        name: Name of the zoo entry that it comes from, such as "a30/forest-inference".
        operations: Predicts single operations.
        host: Model of the host seconds of a call inside a network.
        network_errors: Errors on networks that were left out; None where no network was measured.
        half_errors: Errors on left-out networks that spend most of their time in half precision; None if
            `network_errors` holds for these as well.
        any_gpu: Whether the predictor is for GPUs and clocks that were not measured. Its errors come from such GPUs, so
            they do not grow at other clocks than the default.
        find_shared: Gives the knowledge of a GPU of which nothing was measured, for networks with operations that were
            not measured on its chip. It is loaded when this is called first.
    """

    name: str
    operations: OperationPredictor
    host: HostModel
    network_errors: NetworkCalibration | None = None
    half_errors: NetworkCalibration | None = None
    any_gpu: bool = False
    find_shared: Callable[[], NetworkKnowledge | None] = lambda: None

    def errors_on(self, counts: FloatArray, predictions: OperationPredictions) -> NetworkCalibration | None:
        """Errors on networks like this one; None where nothing is known."""
        if self.operations.not_of_chip(predictions.operations):
            # A GPU's own errors come from networks whose operations were all measured there.
            shared = self.find_shared()
            return None if shared is None else shared.errors_on(counts, predictions)
        if self.half_errors is None:
            return self.network_errors
        shares, known = shares_of(counts, predictions)
        half = [ELEMENT_BYTES[operation.precision] <= 2 for operation in compress(predictions.operations, known)]
        return self.half_errors if float(shares[half].sum()) > _MAJORITY else self.network_errors


@dataclass(frozen=True)
class PreparedNetwork:
    """A network on a GPU under a power cap, which can be predicted at one clock after the other.

    Args:
        knowledge: Predicts operations and composes them, on one GPU in one mode.
        network: Operations of that mode.
        power_limit_w: Power cap in watts.
        known: Its operations at the default clock, as they are inside networks, if these are predicted already.
    """

    knowledge: NetworkKnowledge
    network: Network
    power_limit_w: float
    known: OperationPredictions | None = None

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration, shape (operations,)."""
        return self.network.derived(counts_of)

    @property
    def memory_bytes(self) -> int | None:
        """Device memory that the network needs, estimated; None for a list of operations.

        The tensors of a list of operations need not be in memory at the same time.
        """
        return None if self.network.input_shape is None else self.network.derived(memory_need).total_bytes

    @cached_property
    def at_default(self) -> OperationPredictions:
        """The operations as parts of this network, in the way in which it is run, at the default clock."""
        predictor, network = self.knowledge.operations, self.network
        found = self.known or _in_networks(network.operations, predictor, self.power_limit_w)
        parts = as_parts(network, found, predictor.gpu)
        is_compiled = self.knowledge.host.execution.name == "compiled"
        return as_compiled(network, parts, predictor.gpu) if is_compiled else parts

    @cached_property
    def facts(self) -> tuple[float, float, float]:
        """Host seconds, relative static power and cap, see `Jobs`."""
        gpu, found = self.knowledge.operations.gpu, self.at_default
        static = found.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
        return self.knowledge.host.total_s(self.counts, found), static, self.power_limit_w

    @cached_property
    def coverage(self) -> Coverage:
        """The part of the network that its totals lack; the same at all clocks."""
        return Coverage.of(self.network, self.at_default.source, self.knowledge.name)

    @property
    def missing(self) -> int:
        """Number of operations that are not covered and that the totals lack."""
        return self.at_default.source.count("missing")

    def refuse_uncovered(self, *, strict: bool = False) -> None:
        """Refuse the network if too much of it is not covered; in strict mode, if anything is not.

        Raises InputError: no operation is covered. Raises UncoveredError: too much is not covered for a total; or
        strict mode, and anything is not.
        """
        knowledge, network = self.knowledge, self.network
        if self.missing == len(network):
            raise InputError(
                f"{knowledge.name} covers none of these operations",
                given="; ".join(map(repr, network.operations[:_SHOWN_OPERATIONS])),
                allowed=", ".join(knowledge.operations.coverage),
                hint="choose another precision or GPU",
            )
        self.coverage.refuse_too_much(network.name, strict=strict)


@cached
def _in_networks(
    operations: OperationList, predictor: OperationPredictor, power_limit_w: float
) -> OperationPredictions:
    """Operations at the default clock, as they are inside any network."""
    return predictor.in_network(predictor.predict_for_network(operations, power_limit_w))


def _predict_together(asked: Iterable[PreparedNetwork]) -> None:
    """Predict the operations of networks on all GPUs at once, before they are needed on each."""
    together: dict[Hashable, dict[OperationPredictor, PreparedNetwork]] = defaultdict(dict)
    for each in asked:
        operations, predictor = each.network.operations, each.knowledge.operations
        if each.known is None and not _in_networks.knows(operations, predictor, each.power_limit_w):
            together[predictor.alike(operations)][predictor] = each
    together.pop(None, None)
    for some in together.values():
        predictors, operations = [*some], next(iter(some.values())).network.operations
        at_once = max(1, _AT_ONCE // len(operations))
        for first in range(0, len(predictors), at_once):
            few = predictors[first : first + at_once]
            for predictor, found in zip(few, OperationPredictor.on_each(few, operations), strict=True):
                _in_networks.put(found, operations, predictor, some[predictor].power_limit_w)


@dataclass(frozen=True)
class OverClocks:
    """Totals of a network at many clocks, shape (clocks,) each; NaN where nothing of the network is covered.

    Args:
        prepared: The network on its GPU.
        clocks_mhz: Requested graphics clocks in MHz.
        shared_mhz: The one clock of the whole network under the power cap.
        held_clocks_mhz: Mean clock over device time. It is lower than `shared_mhz` if single operations were measured
            to hold a lower clock.
        time_s, energy_j, device_time_s: Seconds, joules and seconds of the device per iteration.
        loops: For plain sums, the operations in loops of their own at each clock.
    """

    prepared: PreparedNetwork
    clocks_mhz: FloatArray
    shared_mhz: FloatArray
    held_clocks_mhz: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    loops: tuple[OperationPredictions, ...] = ()

    @property
    def composition(self) -> Composition:
        """How operations are added up."""
        return "sum" if self.loops else "overlap"

    @property
    def host_time_s(self) -> float:
        """Seconds that the host needs per iteration, at any clock."""
        prepared = self.prepared
        return plain_sum(prepared.counts, self.loops[0]).host_time_s if self.loops else prepared.facts[0]


Asked = Sequence[tuple[PreparedNetwork, FloatArray]]


def over_gpus(asked: Asked, *, composition: str | None = None) -> list[OverClocks]:
    """Predict prepared networks, each at clocks of its own GPU, all of them together.

    Raises UnknownNameError: an unknown composition. Raises InputError: a clock that a GPU cannot hold.

    Args:
        asked: Networks, and the clocks in MHz at which they are predicted.
        composition: "overlap" or "sum"; None for overlap.
    """
    for prepared, clocks_mhz in asked:
        for clock in (clocks_mhz.min(), clocks_mhz.max()):
            prepared.knowledge.operations.gpu.checked_clock_mhz(float(clock))
    if len(asked) > 1:
        _predict_together(prepared for prepared, _ in asked)
    return named("composition", composition or "overlap", COMPOSITIONS)(asked)


def over_clocks(prepared: PreparedNetwork, clocks_mhz: Iterable[float]) -> OverClocks:
    """Predict a prepared network at many clocks, at least one; see `over_gpus`."""
    (found,) = over_gpus([(prepared, np.array(list(clocks_mhz), dtype=float))])
    return found


def _overlapping(asked: Asked) -> list[OverClocks]:
    """Networks whose host and device overlap, and whose operations share a clock; see `composed`."""
    found: dict[int, OverClocks] = {}
    together: dict[bool, list[int]] = defaultdict(list)
    for place, (prepared, clocks_mhz) in enumerate(paced(asked)):
        if (work := prepared.at_default.work) is None:
            found[place] = OverClocks(prepared, clocks_mhz, *np.full((5, len(clocks_mhz)), np.nan))
        else:
            # Operations that have highest clocks of their own would cost the others an array of voltages.
            together[bool(np.isfinite(work.most_mhz).any())].append(place)
    for places in paced(together.values()):
        each, clocks = zip(*(asked[place] for place in places), strict=True)
        column = np.arange(max(map(len, clocks)))
        runs = [prepared.knowledge.host.execution for prepared in each]
        wanted = np.array([one[np.minimum(column, len(one) - 1)] for one in clocks])
        wanted = np.minimum(wanted, np.array([run.most_clock_mhz for run in runs])[:, None])
        works = [work for prepared in each if (work := prepared.at_default.work) is not None]
        jobs = Jobs.of(works, [prepared.counts for prepared in each], [prepared.facts for prepared in each])
        gaps_s = [run.gap_s * prepared.counts.sum() for run, prepared in zip(runs, each, strict=True)]
        values = composed(jobs, wanted, np.array(gaps_s)[:, None])
        for row, place in enumerate(places):
            found[place] = OverClocks(*asked[place], *values[:, row, : len(clocks[row])])
    return [found[place] for place in range(len(asked))]


def _summed(asked: Asked) -> list[OverClocks]:
    """Plain sums of loops, each of which settles at a clock of its own."""
    found = []
    for prepared, clocks_mhz in asked:
        values, loops = [], []
        for clock in paced(clocks_mhz.tolist()):
            loop = prepared.knowledge.operations.predict(prepared.network.operations, clock, prepared.power_limit_w)
            totals, busy_s = plain_sum(prepared.counts, loop), np.nan_to_num(prepared.counts * loop.device_time_s)
            mean = float(busy_s @ np.nan_to_num(loop.held_clock_mhz)) / busy_s.sum() if busy_s.any() else clock
            values.append((clock, round(mean, 6), totals.time_s, totals.energy_j, totals.device_time_s))
            loops.append(loop)
        found.append(replace(OverClocks(prepared, clocks_mhz, *np.array(values).T), loops=tuple(loops)))
    return found


COMPOSITIONS: Mapping[str, Callable[[Asked], list[OverClocks]]] = {"overlap": _overlapping, "sum": _summed}
"""How operations are added up on GPUs. On a CPU there is one way only, "serial"."""
