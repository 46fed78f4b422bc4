"""NetworkPredictor: networks on a GPU, each prepared once under a power cap and then predicted at many clocks.

Most of the work of a prediction is the cost of operations at the default clock, which needs features and regressors.
The clock law (physics/clock.py) then derives the cost at any other clock with a few array operations, for all networks,
GPUs and clocks that are asked for together. A single network at one clock is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Self

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError
from ...hardware.host import USUAL, Host
from ...operations.attributes import ELEMENT_BYTES
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ...progress import paced
from ..board.calibrated import calibrated
from ..board.profile import launches_in
from ..intervals.network_calibration import NetworkCalibration, shares_of
from ..operation_predictions import OperationPredictions
from ..physics.cached import cached
from ..physics.energy import static_power_w
from ..physics.power_cap import Jobs
from ..predictor import OperationPredictor
from .at_clock import AtClock
from .composition import Execution, HostModel, composed, counts_of, plain_sum
from .costs import Coverage
from .memory import MemoryNeed, memory_need
from .parts import as_compiled, as_parts
from .prediction import Composition, Prediction, checked_composition

_SHOWN_OPERATIONS = 3
_MAJORITY = 0.5  # Share of the device time in 16 bits and less from which a network counts as one in half precision.


@dataclass(frozen=True, eq=False)
class NetworkPredictor:
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
        find_shared: Gives the predictor of a GPU of which nothing was measured, for networks with operations that were
            not measured on its chip. It is loaded when this is called first.
    """

    name: str
    operations: OperationPredictor
    host: HostModel
    network_errors: NetworkCalibration | None = None
    half_errors: NetworkCalibration | None = None
    any_gpu: bool = False
    find_shared: Callable[[], NetworkPredictor | None] = lambda: None

    def under(self, execution: Execution) -> Self:
        """The same predictor for networks that are run in another way, by another host, or on a board of its own.

        Raises InputError: the board's profile is of another GPU.
        """
        profile, host = execution.profile, execution.host.of(self.operations.gpu)
        operations = self.operations if profile is None else calibrated(self.operations, profile)
        launches = launches_in(self.operations.mode)
        if profile is not None and execution.host is USUAL and launches in profile.factors:
            host = Host("the calibrated host", profile.factors[launches], "measured by joulecast calibrate")
        return replace(self, operations=operations, host=replace(self.host, execution=execution, host=host))

    def predict(
        self,
        network: Network,
        clock_mhz: float | None = None,
        power_limit_w: float | None = None,
        *,
        composition: str | None = None,
        strict: bool = False,
    ) -> Prediction:
        """Predict one iteration of a network in this predictor's mode; see `joulecast.predict` for the arguments.

        Raises InputError: another mode, a clock or a cap that the GPU cannot hold, an unknown composition, or a network
        of which nothing is covered. Raises UncoveredError: strict, and some operations are not covered.
        """
        return self.prepared(network, power_limit_w).at(clock_mhz, composition=composition, strict=strict)

    def prepared(self, network: Network, power_limit_w: float | None = None) -> PreparedNetwork:
        """Compute everything that does not depend on the clock. Raises InputError: a cap that the GPU cannot hold."""
        return PreparedNetwork(self, network, self.operations.gpu.checked_power_limit_w(power_limit_w))

    def holds_measured_settings(self, clock_mhz: float, power_limit_w: float) -> bool:
        """Whether a GPU's own measurements were made at this clock and under this power cap."""
        gpu = self.operations.gpu
        return clock_mhz == gpu.boost_clock_mhz and power_limit_w == gpu.power_limit_w

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
    """A network that can be predicted at one clock after the other.

    Args:
        predictor: Predicts operations and composes them, on one GPU in one mode.
        network: Operations of that mode.
        power_limit_w: Power cap in watts.
        notes: Warnings about the network on this GPU, in addition to those that every prediction carries.
        known: Its operations at the default clock, as they are inside networks, if these are predicted already.
    """

    predictor: NetworkPredictor
    network: Network
    power_limit_w: float
    notes: tuple[str, ...] = ()
    known: OperationPredictions | None = None

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration, shape (operations,)."""
        return self.network.derived(counts_of)

    @cached_property
    def memory(self) -> MemoryNeed | None:
        """Device memory that the network needs, estimated; None for a list of operations.

        The tensors of a list of operations need not be in memory at the same time.
        """
        return None if self.network.input_shape is None else self.network.derived(memory_need)

    @cached_property
    def at_default(self) -> OperationPredictions:
        """The operations as parts of this network, in the way in which it is run, at the default clock."""
        predictor, network = self.predictor.operations, self.network
        found = self.known or _in_networks(network.operations, predictor, self.power_limit_w)
        parts = as_parts(network, found, predictor.gpu)
        is_compiled = self.predictor.host.execution.name == "compiled"
        return as_compiled(network, parts, predictor.gpu) if is_compiled else parts

    @cached_property
    def facts(self) -> tuple[float, float, float]:
        """Host seconds, relative static power and cap, see `Jobs`."""
        gpu, found = self.predictor.operations.gpu, self.at_default
        static = found.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
        return self.predictor.host.total_s(self.counts, found), static, self.power_limit_w

    def at(self, clock_mhz: float | None = None, *, composition: str | None = None, strict: bool = False) -> Prediction:
        """Predict one iteration at a graphics clock; see `NetworkPredictor.predict`.

        Raises InputError, UncoveredError: see `NetworkPredictor.predict`.
        """
        clock = self.predictor.operations.gpu.checked_clock_mhz(clock_mhz)
        return over_clocks(self, [clock], composition=composition).at(0).prediction(strict)


@dataclass(frozen=True)
class OverClocks:
    """Totals of a network at many clocks, one value each; NaN where nothing of the network is covered.

    Args:
        prepared: The network on its GPU.
        clocks_mhz: Requested graphics clocks in MHz, shape (clocks,).
        shared_mhz: The one clock of the whole network under the power cap, shape (clocks,).
        held_clocks_mhz: Mean clock over device time, shape (clocks,). It is lower than `shared_mhz` if single
            operations were measured to hold a lower clock.
        time_s, energy_j, device_time_s: Seconds, joules and seconds of the device per iteration, shape (clocks,).
        loops: For plain sums, the operations in loops of their own at each clock; none for host and device that
            overlap.
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

    @cached_property
    def host_time_s(self) -> float:
        """Seconds that the host needs per iteration, at any clock."""
        prepared = self.prepared
        return plain_sum(prepared.counts, self.loops[0]).host_time_s if self.loops else prepared.facts[0]

    @property
    def operations(self) -> OperationPredictions:
        """Its operations at the default clock, as parts of the network; for plain sums, loops at the first clock."""
        return self.loops[0] if self.loops else self.prepared.at_default

    @cached_property
    def coverage(self) -> Coverage:
        """The part of the network that the totals lack; the same at all clocks."""
        return Coverage.of(self.prepared.network, self.operations.source, self.prepared.predictor.name)

    @property
    def missing(self) -> int:
        """Number of operations that are not covered and that the totals lack."""
        return self.operations.source.count("missing")

    def at(self, place: int) -> AtClock:
        """The network at one of the clocks."""
        return AtClock(self, place)

    def refuse_uncovered(self, *, strict: bool = False) -> None:
        """Refuse the network if too much of it is not covered; in strict mode, if anything is not.

        Raises InputError: no operation is covered. Raises UncoveredError: too much is not covered for a total; or
        strict mode, and anything is not.
        """
        predictor, network = self.prepared.predictor, self.prepared.network
        if self.missing == len(network):
            raise InputError(
                f"{predictor.name} covers none of these operations",
                given="; ".join(map(repr, network.operations[:_SHOWN_OPERATIONS])),
                allowed=", ".join(predictor.operations.coverage),
                hint="choose another precision or GPU",
            )
        self.coverage.refuse_too_much(network.name, strict=strict)


def over_clocks(
    prepared: PreparedNetwork, clocks_mhz: Iterable[float], *, composition: str | None = None
) -> OverClocks:
    """Predict a prepared network at many clocks, at least one; see `over_gpus`."""
    (found,) = over_gpus([(prepared, np.array(list(clocks_mhz), dtype=float))], composition=composition)
    return found


def over_gpus(
    asked: Sequence[tuple[PreparedNetwork, FloatArray]], *, composition: str | None = None
) -> list[OverClocks]:
    """Predict prepared networks, each at clocks of its own GPU.

    Raises InputError: another mode, an unknown composition, or a clock or a cap that a GPU cannot hold.

    Args:
        asked: Networks and clocks in MHz. All of them are computed together.
        composition: "overlap" or "sum"; None for overlap.
    """
    way, together = checked_composition(composition or "overlap"), dict[bool, list[int]]()
    found: list[OverClocks | None] = []
    for place, (prepared, clocks_mhz) in enumerate(paced(asked)):
        gpu, operations = prepared.predictor.operations.gpu, prepared.at_default
        for clock in (clocks_mhz.min(), clocks_mhz.max()):
            gpu.checked_clock_mhz(float(clock))
        if operations.work is None:
            found.append(OverClocks(prepared, clocks_mhz, *np.full((5, len(clocks_mhz)), np.nan)))
        elif way == "sum":
            found.append(_summed(prepared, clocks_mhz))
        else:
            # Operations that have highest clocks of their own would cost the others an array of voltages.
            together.setdefault(bool(np.isfinite(operations.work.most_mhz).any()), []).append(place)
            found.append(None)
    for places in paced(together.values()):
        some = [asked[place] for place in places]
        for place, values in zip(places, _composed(some), strict=True):
            found[place] = OverClocks(*asked[place], *values)
    return [each for each in found if each is not None]


def _composed(asked: Sequence[tuple[PreparedNetwork, FloatArray]]) -> list[FloatArray]:
    """Totals of prepared networks whose host and device overlap, each at clocks of its own; see `composed`."""
    each = [prepared for prepared, _ in asked]
    most_mhz = [prepared.predictor.host.execution.most_clock_mhz for prepared in each]
    places = np.arange(max(len(clocks_mhz) for _, clocks_mhz in asked))
    wanted = np.array([clocks_mhz[np.minimum(places, len(clocks_mhz) - 1)] for _, clocks_mhz in asked])
    wanted = np.minimum(wanted, np.array(most_mhz)[:, None])
    works = [work for prepared in each if (work := prepared.at_default.work) is not None]
    jobs = Jobs.of(works, [prepared.counts for prepared in each], [prepared.facts for prepared in each])
    gaps_s = [prepared.predictor.host.execution.gap_s * prepared.counts.sum() for prepared in each]
    values = composed(jobs, wanted, np.array(gaps_s)[:, None])
    return [values[:, place, : len(clocks_mhz)] for place, (_, clocks_mhz) in enumerate(asked)]


def _summed(prepared: PreparedNetwork, clocks_mhz: FloatArray) -> OverClocks:
    """Plain sums of loops, each of which settles at a clock of its own."""
    operations, cap_w, values, loops = prepared.network.operations, prepared.power_limit_w, [], []
    for clock in paced(clocks_mhz.tolist()):
        found = prepared.predictor.operations.predict(operations, clock, cap_w)
        totals, busy_s = plain_sum(prepared.counts, found), np.nan_to_num(prepared.counts * found.device_time_s)
        mean = float(busy_s @ np.nan_to_num(found.held_clock_mhz)) / busy_s.sum() if busy_s.any() else clock
        values.append((clock, round(mean, 6), totals.time_s, totals.energy_j, totals.device_time_s))
        loops.append(found)
    return replace(OverClocks(prepared, clocks_mhz, *np.array(values).T), loops=tuple(loops))


@cached
def _in_networks(
    operations: OperationList, predictor: OperationPredictor, power_limit_w: float
) -> OperationPredictions:
    """Operations at the default clock, as they are inside any network."""
    return predictor.in_network(predictor.predict_for_network(operations, power_limit_w))
