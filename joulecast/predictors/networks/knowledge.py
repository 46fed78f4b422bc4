"""What is known of networks on one GPU in one mode, and the one place that builds a Prediction from totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np

from ...arrays import FloatArray, total
from ...errors import InputError
from ...hardware.host import REFERENCE, USUAL
from ...operations.attributes import ELEMENT_BYTES
from ...operations.network import Network
from ...units import si
from ..intervals.conformal import power_range_w
from ..intervals.network_calibration import (
    FAR_SHARE,
    STEP_BASIS,
    Interval,
    NetworkCalibration,
    NetworkSpread,
    shares_of,
)
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from ..physics.roofline import roofline
from ..predictor import OperationPredictor
from .composition import COMPILED_LAUNCH_S, EAGER, GRAPH_LAUNCH_S, HostModel, counts_of
from .costs import Coverage, OperationCost
from .parts import unconfirmed_share
from .prediction import Composition, Prediction

_SHOWN_KINDS = 4
_SHOWN_OPERATIONS = 3
_LEAST_S = 1e-15  # Instead of a division by zero.
_LEAST = 1e-300
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
class OverClocks:
    """Totals of a network at many clocks, one value each; NaN where nothing of the network is covered.

    Args:
        knowledge: Predicts operations and composes them, on one GPU in one mode.
        network: The network.
        operations: Predictions of its operations at the default clock, as parts of the network.
        power_limit_w: Power cap in watts.
        composition: How operations are added up: "overlap" of host and device, or "sum".
        clocks_mhz: Requested graphics clocks in MHz, shape (clocks,).
        shared_mhz: The one clock of the whole network under the power cap, shape (clocks,).
        held_clocks_mhz: Mean clock over device time, shape (clocks,). It is lower than `shared_mhz` if single
            operations were measured to hold a lower clock.
        time_s, energy_j, device_time_s: Seconds, joules and seconds of the device per iteration, shape (clocks,).
        host_time_s: Seconds that the host needs per iteration, at any clock.
        loops: For "sum", the operations in loops of their own at each clock.
    """

    knowledge: NetworkKnowledge
    network: Network
    operations: OperationPredictions
    power_limit_w: float
    composition: Composition
    clocks_mhz: FloatArray
    shared_mhz: FloatArray
    held_clocks_mhz: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    host_time_s: float
    loops: tuple[OperationPredictions, ...] = ()

    @cached_property
    def coverage(self) -> Coverage:
        """The part of the network that the totals lack; the same at all clocks."""
        return Coverage.of(self.network, self.operations.source, self.knowledge.name)

    @property
    def missing(self) -> int:
        """Number of operations that are not covered and that the totals lack."""
        return self.operations.source.count("missing")

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration, shape (operations,)."""
        return self.network.derived(counts_of)

    def operations_at(self, place: int) -> OperationPredictions:
        """The operations at one of the clocks, at the clock that they share there.

        Time, power and energy of measurement loops stay those at the default clock, because networks do not use them.
        """
        if self.loops:
            return self.loops[place]
        found, work = self.operations, self.operations.work
        if work is None:
            return found
        held_mhz, boost_mhz = float(self.shared_mhz[place]), float(work.gpu.boost_clock_mhz)
        device_s, dynamic_j = work.at(held_mhz)
        source = found.source
        if self.clocks_mhz[place] != boost_mhz and "measured" in source:
            source = tuple("modelled" if each == "measured" else each for each in source)
        return replace(
            found,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            held_clock_mhz=np.minimum(held_mhz, work.most_mhz) + np.zeros(len(device_s)),
            source=source,
            static_power_w=found.static_power_w
            * (static_power_w(work.gpu, held_mhz) / static_power_w(work.gpu, boost_mhz)),
        )


def build_prediction(
    found: OverClocks, place: int, strict: bool, memory_bytes: int | None = None, notes: tuple[str, ...] = ()
) -> Prediction:
    """Put a prediction together.

    Raises InputError: no operation is covered. Raises UncoveredError: too much is not covered for a total; or strict
    mode, and anything is not.
    """
    refuse_uncovered(found, strict)
    knowledge, network, gpu = found.knowledge, found.network, found.knowledge.operations.gpu
    predictions = found.operations_at(place)
    spread = _spread(found, place, predictions)
    held_mhz, totals_j = float(found.held_clocks_mhz[place]), float(found.energy_j[place])
    return Prediction(
        network=network.name,
        input_shape=network.input_shape,
        mode=network.mode,
        gpu=gpu.name,
        clock_mhz=float(found.clocks_mhz[place]),
        predictor=knowledge.name,
        composition=found.composition,
        time_s=float(found.time_s[place]),
        energy_j=totals_j,
        device_time_s=float(found.device_time_s[place]),
        host_time_s=found.host_time_s,
        power_limit_w=found.power_limit_w,
        held_clock_mhz=held_mhz,
        operations=tuple(_costs(found, place, predictions)),
        spread=spread,
        notes=(*_notes(found, place, spread), *notes, *_beyond_the_cap(found, place)),
        coverage=found.coverage,
        execution=knowledge.host.execution.name,
        host=knowledge.host.launcher.name,
        idle_power_w=power_range_w(gpu, found.power_limit_w)[0],
        memory_bytes=memory_bytes,
    )


def caveats(found: OverClocks, place: int, level: float) -> tuple[Interval | None, tuple[str, ...]]:
    """How far to trust the totals of a network at one of its clocks: an interval, if enough errors are known; notes."""
    spread = _spread(found, place, found.operations_at(place))
    notes = tuple(_notes(found, place, spread))
    if spread is None or not spread.supports(level):
        return None, notes
    totals = float(found.time_s[place]), float(found.energy_j[place]), float(found.held_clocks_mhz[place])
    power_range = power_range_w(found.knowledge.operations.gpu, found.power_limit_w)
    return spread.interval(level, *totals, power_range), notes


def _spread(found: OverClocks, place: int, predictions: OperationPredictions) -> NetworkSpread | None:
    """The spread of errors on networks like this one; None where no errors are known."""
    knowledge, counts, coverage = found.knowledge, found.counts, found.coverage
    if coverage.share is None:
        return None  # It is not known how much time the uncovered operations add.
    errors = knowledge.errors_on(counts, predictions)
    if errors is None or found.composition not in errors.scores:
        return None
    if knowledge.host.execution.name == "compiled":
        # Compiled training in half precision is as far off as eager one (benchmarks/training/MEGATRON.md).
        if errors.basis != STEP_BASIS or found.device_time_s[place] <= 2 * found.host_time_s:
            return None
    elif knowledge.host.execution != EAGER:
        # The known errors come from eager runs on the hosts on which networks were measured. They hold where the device
        # needs twice as long as such a run would make it wait.
        eager = replace(knowledge.host, execution=EAGER, host=REFERENCE)
        host_s = eager.total_s(counts, predictions) * max(1.0, knowledge.host.launcher.factor)
        if eager.device_s(counts, predictions) <= 2 * host_s:
            return None
    # Some errors come from GPUs and clocks that were not measured.
    unmeasured = knowledge.any_gpu or bool(knowledge.operations.not_of_chip(found.network.operations))
    as_measured = unmeasured or knowledge.holds_measured_settings(float(found.clocks_mhz[place]), found.power_limit_w)
    return NetworkSpread.of(
        errors,
        found.composition,
        predictions.spread if errors.difficulties else None,
        counts,
        predictions,
        missing_share=coverage.share,
        measured_mhz=None if as_measured else float(knowledge.operations.gpu.boost_clock_mhz),
        unconfirmed_share=unconfirmed_share(found.network, knowledge.operations.gpu, counts, predictions),
    )


def _notes(found: OverClocks, place: int, spread: NetworkSpread | None) -> Iterator[str]:
    """Warnings that a prediction carries: work that its totals lack, the basis of its numbers, how it is run."""
    knowledge, network, coverage = found.knowledge, found.network, found.coverage
    if coverage:
        yield str(coverage)
    yield from (f"assumed: {assumption}" for assumption in network.assumptions)
    gpu = knowledge.operations.gpu
    if knowledge.host.execution.profile is not None:
        yield from knowledge.host.execution.profile.notes(knowledge.name, network.mode)
    remarks = knowledge.operations.remarks(network.operations)
    if knowledge.any_gpu:
        what = "what the next notes do not name is predicted" if remarks else "predicted"
        yield f"{gpu.name} has no predictor of its own: {what} from its data sheet by what other GPUs showed"
    elif not knowledge.holds_measured_settings(float(found.clocks_mhz[place]), found.power_limit_w):
        yield "no other clock or cap was measured: time and energy are scaled by physics, the interval is wider"
    if kinds := knowledge.operations.not_of_chip(network.operations):
        shown = _first(kinds)
        yield f"not measured on {gpu.name}, predicted from its data sheet by what other GPUs showed: {shown}"
        if spread is not None:
            yield f"the interval is that of networks on GPUs of which nothing was measured, not of {gpu.name}'s own"
    yield from remarks
    if spread is not None and (unmeasured := spread.never_measured_kinds):
        yield f"no dataset has measured {_first(unmeasured)}: the interval is wider"
    if not knowledge.host.learned:
        yield "no network was measured on this GPU: host cost taken from the A30"
    if coverage.share is None:
        yield "no interval: it is not known how much work is not covered; extract the network again"
    elif spread is None:
        why = "errors are known of eager runs on the hosts of the measurements alone"
        if knowledge.host.execution.name == "compiled":
            why = "no compiled network was measured, so its error is not known"
        elif knowledge.host.execution == EAGER:
            why = "no errors on networks are known"
        yield f"no interval: {why}"
    elif spread.far_outside:
        yield f"far outside the training data: over {100 * FAR_SHARE:.0f} % of the device time"
    yield from _execution_notes(knowledge, float(found.device_time_s[place]), found.host_time_s)


def _first(kinds: Sequence[str]) -> str:
    more = f" and {len(kinds) - _SHOWN_KINDS} more" if len(kinds) > _SHOWN_KINDS else ""
    return ", ".join(kinds[:_SHOWN_KINDS]) + more


def _execution_notes(knowledge: NetworkKnowledge, device_s: float, host_s: float) -> Iterator[str]:
    """Warnings about how the network is run: whether the host decides its time, and what is assumed."""
    execution, launcher = knowledge.host.execution, knowledge.host.launcher
    if launcher.note:
        yield launcher.note
    if execution.name == "graph":
        yield f"run as a CUDA graph: that the host launches it in {1e6 * GRAPH_LAUNCH_S:g} us is an assumption"
    elif execution.name == "compiled":
        yield (
            "run by torch.compile: rules say which operations share a kernel, and that the host launches one in "
            f"{1e6 * COMPILED_LAUNCH_S:g} us is an assumption; no compiled network was measured"
        )
    elif host_s > device_s:
        assumed = f"it is taken to be {launcher.name}, " if execution.host is USUAL else ""
        yield (
            f"the host decides the time: it launches in {si(host_s, 's')} what the GPU does in {si(device_s, 's')}; "
            f"{assumed}hosts differ by factors of 2 to 3 (`joulecast host` measures yours)"
        )


def refuse_uncovered(found: OverClocks, strict: bool = False) -> None:
    """Refuse a network if too much of it is not covered; in strict mode, if anything is not.

    Raises InputError: no operation is covered. Raises UncoveredError: too much is not covered for a total; or strict
    mode, and anything is not.
    """
    knowledge = found.knowledge
    if found.missing == len(found.network):
        raise InputError(
            f"{knowledge.name} covers none of these operations",
            given="; ".join(map(repr, found.operations.operations[:_SHOWN_OPERATIONS])),
            allowed=", ".join(knowledge.operations.coverage),
            hint="choose another precision or GPU",
        )
    found.coverage.refuse_too_much(found.network.name, strict=strict)


def _costs(found: OverClocks, place: int, predictions: OperationPredictions) -> Iterator[OperationCost]:
    """Distribute the time and energy of a network over its operations, all calls of each together.

    Dynamic energy belongs to the operation that causes it. Static energy is distributed in proportion to device time,
    so that the parts add up to the whole.
    """
    counts, total_j = found.counts, float(found.energy_j[place])
    device_s = counts * predictions.device_time_s
    power_w = predictions.static_power_w + predictions.dynamic_energy_j / np.maximum(
        predictions.device_time_s, _LEAST_S
    )
    power_w = np.minimum(power_w, found.power_limit_w)
    dynamic_j = counts * predictions.dynamic_energy_j
    dynamic_sum_j = float(total(dynamic_j))
    # Under a power cap operations draw less than they would without it, so their dynamic energies are scaled down.
    scale = min(1.0, total_j / max(dynamic_sum_j, _LEAST))
    shared_j = total_j - scale * dynamic_sum_j
    energy_j = scale * dynamic_j + shared_j * device_s / max(float(total(device_s)), _LEAST)
    columns = (device_s.tolist(), power_w.tolist(), energy_j.tolist(), (scale * dynamic_j).tolist())
    known = [source != "missing" for source in predictions.source]
    some = predictions.operations if all(known) else [*compress(predictions.operations, known)]
    by_line = iter(roofline(some, found.knowledge.operations.gpu, float(found.clocks_mhz[place])).bounds)
    on_device = (predictions.device_time_s >= found.knowledge.host.calls_s(predictions)).tolist()
    for entry, *values, source, longer in zip(found.network, *columns, predictions.source, on_device, strict=True):
        if source == "missing":  # It has no device time, so its bound is not known; "launch" is a placeholder.
            yield OperationCost(entry, None, None, None, source, "launch")
        else:
            time, power, energy, dynamic = values
            bound = next(by_line)
            yield OperationCost(entry, time, power, energy, source, bound if longer else "launch", dynamic)


def _beyond_the_cap(found: OverClocks, place: int) -> Iterator[str]:
    """A warning if even the lowest clock exceeds the cap: the GPU has to pause, which the clock law does not model."""
    gpu, cap_w = found.knowledge.operations.gpu, found.power_limit_w
    at_cap = cap_w < gpu.power_limit_w and found.energy_j[place] > 0.999 * cap_w * found.time_s[place]
    if at_cap and found.held_clocks_mhz[place] < 1.01 * gpu.min_clock_mhz:
        yield f"at its lowest clock, {gpu.min_clock_mhz} MHz, it would draw more than this cap: it takes longer"
