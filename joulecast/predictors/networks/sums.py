"""Totals of many networks as sums over arrays: what composition.py computes of one network, of thousands at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.calls import Calls
from ..operation_predictions import OperationPredictions
from ..physics.clock import ROUNDS, TRIED, Work
from ..physics.energy import static_power_w
from ..physics.norms import smooth_max
from .composition import overlap
from .knowledge import NetworkKnowledge
from .parts import part_factors


def can_be_summed(knowledge: NetworkKnowledge, calls: Calls, predictions: OperationPredictions) -> bool:
    """Whether each operation costs what it costs in any network, so that totals are sums over operations.

    Args:
        knowledge: The predictor, and what it knows about networks.
        calls: The networks.
        predictions: Predictions of their operations.
    """
    alike = knowledge.operations.same_in_all_networks and knowledge.host.execution.name != "compiled"
    if not alike or predictions.work is None:
        return False
    # In training, the cost of a depthwise convolution depends on its network (parts.py), which a table does not list.
    listed = bool(calls.listed) or knowledge.operations.mode == "inference"
    return listed or not any(operation.is_depthwise for operation in calls.operations)


def totals_of(
    knowledge: NetworkKnowledge, calls: Calls, predictions: OperationPredictions, clock_mhz: float, cap_w: float
) -> FloatArray:
    """Totals of networks whose operations are all covered; those of others are NaN or too low.

    Args:
        knowledge: The predictor, and what it knows about networks; see `can_be_summed`.
        calls: The networks.
        predictions: The operations of `calls` at the default clock.
        clock_mhz: Requested graphics clock in MHz.
        cap_w: Power cap in watts.

    Returns:
        Seconds, joules, seconds of device and host, held clock in MHz, and a share of 0 that is not covered, shape
        (6, networks).
    """
    gpu, host, places = knowledge.operations.gpu, knowledge.host, calls.places
    found = knowledge.operations.in_network(predictions, np.ones(len(calls.operations)))
    work = _work(calls, found)
    host_s = host.fixed_s + calls.sums(host.calls_s(found)[places])
    # Board power of the waiting GPU over that of physics: the same factor at all clocks.
    static = found.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
    held_mhz = _held_mhz(work, calls, clock_mhz, cap_w, host_s, static)
    device_s, dynamic_j = work.at(held_mhz[calls.owners])
    busy_s = calls.sums(device_s)
    gaps_s = host.gaps_s(calls.sums(np.ones(len(places))), knowledge.operations.mode)
    total_s = busy_s + gaps_s
    static_w = static * static_power_w(gpu, held_mhz)
    time_s, energy_j = overlap(total_s, host_s, calls.sums(dynamic_j), static_w, cap_w)
    each_mhz = np.minimum(held_mhz[calls.owners], work.most_mhz)
    mean_mhz = calls.sums(device_s * each_mhz) / np.maximum(busy_s, 1e-300)
    # Rounded, because rounding errors would make the mean of equal clocks differ from that clock.
    mean_mhz = np.where(busy_s > 0, np.round(mean_mhz, 6), clock_mhz)
    return np.array([time_s, energy_j, total_s, host_s, mean_mhz, np.zeros(len(calls.names))])


def _work(calls: Calls, found: OperationPredictions) -> Work:
    """The work of each row: that of its operation, as a part of its network."""
    if found.work is None:
        raise ValueError("a predictor without the clock law; see can_be_summed")
    work = found.work.take(calls.places)
    training = found.operations[0].mode == "training"
    if not calls.listed or not (training or any(network.channels_last for network in calls.listed)):
        return work
    factors = np.concatenate([part_factors(network, work.gpu) for network in calls.listed])
    return work.scaled_by(factors, factors)


def _held_mhz(
    work: Work, calls: Calls, clock_mhz: float, cap_w: float, host_s: FloatArray, static: float
) -> FloatArray:
    """The clock that each network holds under the power cap, shape (networks,).

    This is `Work.held_together_mhz` for many networks at once. The clocks to try differ between networks, and
    the largest that fits is found by bisection.
    """

    def within(clocks: FloatArray) -> NDArray[np.bool_]:
        device_s, dynamic_j = work.at(clocks[calls.owners])
        time_s = smooth_max(calls.sums(device_s), host_s)
        allowed_w = np.maximum(cap_w - static * static_power_w(work.gpu, clocks), 1.0)
        return np.asarray(calls.sums(dynamic_j) <= allowed_w * time_s)

    asked = np.full(len(calls.names), clock_mhz)
    if cap_w >= work.cap_w:
        return asked
    fits = within(asked)
    if fits.all():
        return asked
    low, high = (np.full(len(asked), float(mhz)) for mhz in (work.gpu.min_clock_mhz, work.gpu.max_clock_mhz))
    each = np.arange(len(asked))
    for _ in range(ROUNDS):
        tried = np.linspace(low, high, TRIED)
        best = np.zeros(len(asked), dtype=int)
        for step in (16, 8, 4, 2, 1):
            next_one = best + step
            inside = next_one < TRIED - 1
            best = np.where(inside & within(tried[np.minimum(next_one, TRIED - 2), each]), next_one, best)
        low, high = tried[best, each], tried[best + 1, each]
    return np.where(fits, asked, np.minimum(asked, low))
