"""The only place where a Prediction is built from totals, the cost of each operation, errors and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from ...arrays import FloatArray, total
from ...errors import InputError
from ...hardware.host import REFERENCE, USUAL
from ...operations.network import Network
from ...units import si
from ..intervals.network_spread import FAR_SHARE, NetworkSpread
from ..intervals.power_range import power_range_w
from ..operation_predictions import OperationPredictions
from ..physics.roofline import roofline
from .composition import Totals, counts_of
from .execution import COMPILED_LAUNCH_S, EAGER, GAP_S
from .knowledge import NetworkKnowledge
from .operation_cost import Bound, OperationCost
from .prediction import Composition, Prediction
from .uncovered import Coverage

_SHOWN_KINDS = 4
_SHOWN_OPERATIONS = 3
_LEAST_S = 1e-15  # Instead of a division by zero.
_LEAST = 1e-300


@dataclass(frozen=True)
class Conditions:
    """The conditions under which a network is predicted.

    Args:
        clock_mhz: Requested graphics clock in MHz.
        power_limit_w: Requested power cap in watts.
        composition: How operations are added up: "overlap" of host and device, or "sum".
    """

    clock_mhz: float
    power_limit_w: float
    composition: Composition


def build_prediction(
    knowledge: NetworkKnowledge,
    network: Network,
    conditions: Conditions,
    predictions: OperationPredictions,
    totals: Totals,
    memory_bytes: int | None = None,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """Put a prediction together.

    Args:
        knowledge: The predictor, and what it knows about networks.
        network: The network.
        conditions: Clock, power cap and composition.
        predictions: Predictions of its operations, at the clock that the GPU holds.
        totals: Time and energy of all operations together.
        memory_bytes: Device memory that the network needs; None if that is not known.
        notes: Warnings about this network on this GPU; those that follow from the prediction come before them.
    """
    gpu, cap_w = knowledge.operations.gpu, conditions.power_limit_w
    counts = counts_of(network)
    held_mhz = held_mean_mhz(counts, predictions, conditions.clock_mhz)
    coverage = Coverage.of(network, predictions.source, knowledge.name)
    spread = spread_of(knowledge, network, conditions, predictions, coverage)
    return Prediction(
        network=network.name,
        input_shape=network.input_shape,
        mode=network.mode,
        gpu=gpu.name,
        clock_mhz=conditions.clock_mhz,
        predictor=knowledge.name,
        composition=conditions.composition,
        time_s=totals.time_s,
        energy_j=totals.energy_j,
        device_time_s=totals.device_time_s,
        host_time_s=totals.host_time_s,
        power_limit_w=cap_w,
        held_clock_mhz=held_mhz,
        operations=tuple(_costs(knowledge, network, counts, predictions, totals, conditions)),
        spread=spread,
        notes=(
            *notes_of(knowledge, network, conditions, spread, coverage),
            *execution_notes(knowledge, totals.device_time_s, totals.host_time_s),
            *notes,
            *_beyond_the_cap(knowledge, totals, held_mhz, cap_w),
        ),
        coverage=coverage,
        execution=knowledge.host.execution.name,
        host=knowledge.host.launcher.name,
        idle_power_w=power_range_w(gpu, cap_w)[0],
        memory_bytes=memory_bytes,
    )


def spread_of(
    knowledge: NetworkKnowledge,
    network: Network,
    conditions: Conditions,
    predictions: OperationPredictions,
    coverage: Coverage,
) -> NetworkSpread | None:
    """The spread of errors on networks like this one; None where no errors are known."""
    if coverage.share is None:
        return None  # It is not known how much time the uncovered operations add.
    counts, by_fallback = counts_of(network), bool(knowledge.operations.by_fallback(network.operations))
    errors = knowledge.errors_on(counts, predictions)
    if errors is None or conditions.composition not in errors.scores:
        return None
    if knowledge.host.execution != EAGER and not _device_decides(knowledge, counts, predictions):
        return None  # The known errors come from eager runs on the hosts on which networks were measured.
    if knowledge.host.execution.name == "compiled":
        return None
    unmeasured = knowledge.any_gpu or by_fallback  # The errors come from GPUs and clocks that were not measured.
    as_measured = unmeasured or knowledge.holds_measured_settings(conditions.clock_mhz, conditions.power_limit_w)
    return NetworkSpread(
        networks=errors,
        composition=conditions.composition,
        operations=predictions.spread if errors.difficulties else None,
        counts=counts,
        predictions=predictions,
        missing_share=coverage.share,
        measured_mhz=None if as_measured else float(knowledge.operations.gpu.boost_clock_mhz),
    )


def notes_of(
    knowledge: NetworkKnowledge,
    network: Network,
    conditions: Conditions,
    spread: NetworkSpread | None,
    coverage: Coverage,
) -> Iterator[str]:
    """Warnings that a prediction carries: work that its totals lack, and the basis of its numbers."""
    if coverage:
        yield str(coverage)
    yield from (f"assumed: {assumption}" for assumption in network.assumptions)
    gpu = knowledge.operations.gpu
    if knowledge.any_gpu:
        yield f"{gpu.name} has no predictor of its own: predicted from its data sheet by what other GPUs showed"
    elif not knowledge.holds_measured_settings(conditions.clock_mhz, conditions.power_limit_w):
        yield "no other clock or cap was measured: time and energy are scaled by physics, the interval is wider"
    if kinds := knowledge.operations.by_fallback(network.operations):
        shown = _first(kinds)
        yield f"not measured on {gpu.name}, predicted from its data sheet by what other GPUs showed: {shown}"
        if spread is not None:
            yield f"the interval is that of networks on GPUs of which nothing was measured, not of {gpu.name}'s own"
    yield from knowledge.operations.remarks(network.operations)
    if spread is not None and (unmeasured := spread.never_measured_kinds):
        yield f"no dataset has measured {_first(unmeasured)}: the interval is wider"
    if not knowledge.host.learned:
        yield "no network was measured on this GPU: host cost taken from the A30"
    if coverage.share is None:
        yield "no interval: it is not known how much work is not covered; extract the network again"
    elif spread is None:
        yield f"no interval: {_why_no_errors(knowledge)}"
    elif spread.far_outside:
        yield f"far outside the training data: over {100 * FAR_SHARE:.0f} % of the device time"


def _why_no_errors(knowledge: NetworkKnowledge) -> str:
    if knowledge.host.execution.name == "compiled":
        return "no compiled network was measured, so its error is not known"
    if knowledge.host.execution == EAGER:
        return "no errors on networks are known"
    return "errors are known of eager runs on the hosts of the measurements alone"


def _first(kinds: Sequence[str]) -> str:
    more = f" and {len(kinds) - _SHOWN_KINDS} more" if len(kinds) > _SHOWN_KINDS else ""
    return ", ".join(kinds[:_SHOWN_KINDS]) + more


def execution_notes(knowledge: NetworkKnowledge, device_s: float, host_s: float) -> Iterator[str]:
    """Warnings about how the network is run: whether the host decides its time, and what is assumed.

    Args:
        knowledge: The predictor, and what it knows about networks.
        device_s: Seconds of the device per iteration.
        host_s: Seconds of the host per iteration.
    """
    execution, launcher = knowledge.host.execution, knowledge.host.launcher
    if launcher.note:
        yield launcher.note
    if execution.name == "graph":
        yield f"run as a CUDA graph: that {1e6 * GAP_S:g} us pass between kernels is an assumption"
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


def _device_decides(knowledge: NetworkKnowledge, counts: FloatArray, predictions: OperationPredictions) -> bool:
    """Whether the device needs twice as long as an eager run on the reference host would make it wait."""
    eager = replace(knowledge.host, execution=EAGER, host=REFERENCE)
    device_s, host_s = eager.device_s(counts, predictions), eager.total_s(counts, predictions)
    return device_s > 2 * max(host_s, host_s * knowledge.host.launcher.factor)


def refuse_uncovered(
    knowledge: NetworkKnowledge, network: Network, predictions: OperationPredictions, strict: bool
) -> None:
    """Refuse a network if too much of it is not covered; in strict mode, if anything is not.

    Args:
        knowledge: The predictor, and what it knows about networks.
        network: The network.
        predictions: Predictions of the network's operations.
        strict: Whether to refuse a network with a single operation that is not covered.

    Raises:
        InputError: No operation is covered.
        UncoveredError: Too much is not covered for a total; or strict mode, and anything is not.
    """
    if set(predictions.source) == {"missing"}:
        raise InputError(
            f"{knowledge.name} covers none of these operations",
            given="; ".join(map(repr, predictions.operations[:_SHOWN_OPERATIONS])),
            allowed=", ".join(knowledge.operations.coverage),
            hint="choose another precision or GPU",
        )
    coverage = Coverage.of(network, predictions.source, knowledge.name)
    if strict:
        coverage.refuse_any(network.name)
    coverage.refuse_too_much(network.name)


def _costs(
    knowledge: NetworkKnowledge,
    network: Network,
    counts: FloatArray,
    predictions: OperationPredictions,
    totals: Totals,
    conditions: Conditions,
) -> Iterator[OperationCost]:
    """Distribute the time and energy of a network over its operations, all calls of each together.

    Dynamic energy belongs to the operation that causes it. Static energy is distributed in proportion to device time,
    so that the parts add up to the whole.
    """
    device_s = counts * predictions.device_time_s
    power_w = predictions.static_power_w + predictions.dynamic_energy_j / np.maximum(
        predictions.device_time_s, _LEAST_S
    )
    power_w = np.minimum(power_w, conditions.power_limit_w)
    dynamic_j = counts * predictions.dynamic_energy_j
    dynamic_sum_j = float(total(dynamic_j))
    # Under a power cap operations draw less than they would without it, so their dynamic energies are scaled down.
    scale = min(1.0, totals.energy_j / max(dynamic_sum_j, _LEAST))
    shared_j = totals.energy_j - scale * dynamic_sum_j
    energy_j = scale * dynamic_j + shared_j * device_s / max(float(total(device_s)), _LEAST)
    columns = (device_s.tolist(), power_w.tolist(), energy_j.tolist(), (scale * dynamic_j).tolist())
    bounds = _bounds(knowledge, predictions, conditions.clock_mhz)
    for entry, *values, source, bound in zip(network, *columns, predictions.source, bounds, strict=True):
        time, power, energy, dynamic = (None, None, None, None) if source == "missing" else values
        yield OperationCost(entry, time, power, energy, source, bound, dynamic)


def _bounds(knowledge: NetworkKnowledge, predictions: OperationPredictions, clock_mhz: float) -> Iterator[Bound]:
    """The limit on the time of each operation; see `OperationCost.bound_by`."""
    known = [source != "missing" for source in predictions.source]
    some = predictions.operations if all(known) else [*compress(predictions.operations, known)]
    by_line = iter(roofline(some, knowledge.operations.gpu, clock_mhz).bounds)
    # A missing operation has no device time, so its bound is not known; "launch" is a placeholder.
    on_device = predictions.device_time_s >= knowledge.host.calls_s(predictions)
    for is_known, longer in zip(known, on_device.tolist(), strict=True):
        bound = next(by_line) if is_known else "launch"
        yield bound if longer else "launch"


def _beyond_the_cap(knowledge: NetworkKnowledge, totals: Totals, held_mhz: float, cap_w: float) -> Iterator[str]:
    """A warning if even the lowest clock exceeds the cap: the GPU has to pause, which the clock law does not model."""
    gpu = knowledge.operations.gpu
    at_cap = cap_w < gpu.power_limit_w and totals.energy_j > 0.999 * cap_w * totals.time_s
    if at_cap and held_mhz < 1.01 * gpu.min_clock_mhz:
        yield f"at its lowest clock, {gpu.min_clock_mhz} MHz, it would draw more than this cap: it takes longer"


def held_mean_mhz(counts: FloatArray, predictions: OperationPredictions, clock_mhz: float) -> float:
    """The clock that the GPU holds, averaged over device time."""
    busy_s = counts * predictions.device_time_s
    if not (whole_s := total(busy_s)):
        return clock_mhz
    # Rounded, because rounding errors would make the mean of equal clocks differ from that clock.
    return round(float(total(busy_s * predictions.held_clock_mhz) / whole_s), 6)
