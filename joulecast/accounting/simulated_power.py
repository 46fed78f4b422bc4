"""Simulates the power of events, so that the true joules of each are known, and sensors that sample this power.

Every operator has a power of its own above that of the idle device, so its joules do not follow from its time alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import FloatArray
from ..metering.energy_curve import EnergyCurve
from ..metering.recording import DeviceInfo
from .events import Events
from .shares import Counter
from .sweep import sweep

STATIC_W = 20.0
"""Power in watts of a simulated device on which nothing runs."""

# Range of the power above idle: about that of one core of a server's CPU, from copies to matrix products.
_LEAST_W, _MOST_W = 10.0, 60.0


@dataclass(frozen=True)
class KnownPower:
    """A device with simulated power.

    Args:
        energy_j: True joules of each event, shape (events,): its own above idle, and its share of the idle joules. Zero
            for events of other devices.
    """

    counter: Counter
    energy_j: FloatArray


def operator_power_w(operation: str) -> float:
    """Simulated watts of an operator above idle: an arbitrary value, which is always the same for the same name."""
    return _LEAST_W + (_MOST_W - _LEAST_W) * (zlib.crc32(operation.encode()) % 1000) / 999


def known_power(
    events: Events, device: str = "cpu", watts: Mapping[str, float] | None = None, static_w: float = STATIC_W
) -> KnownPower:
    """Simulate the power of a device on which events run."""
    mine = events.on(device)
    start_s, end_s = events.start_s[mine], events.end_s[mine]
    by_place = np.array([
        operator_power_w(place.operation) if watts is None else watts[place.operation] for place in events.places
    ])  # fmt: skip
    above_w = by_place[events.place[mine]]
    window_s = events.window_s
    edges = np.unique(np.concatenate([start_s, end_s, window_s]))
    steps = np.zeros(len(edges))
    np.add.at(steps, np.searchsorted(edges, start_s), above_w)
    np.add.at(steps, np.searchsorted(edges, end_s), -above_w)
    power_w = static_w + np.maximum(np.cumsum(steps)[:-1], 0.0)
    energy_j = np.concatenate([[0.0], np.cumsum(power_w * np.diff(edges))])
    curve = EnergyCurve(edges, energy_j, np.zeros(len(edges)))
    info = DeviceInfo(device if device.startswith("gpu") else "cpu0", "simulated", method="modelled", idle_w=static_w)
    joules = np.zeros(len(events))
    joules[mine] = above_w * (end_s - start_s) + static_w * sweep(start_s, end_s).time_s
    return KnownPower(Counter(info, curve), joules)


def sampled(counter: Counter, period_s: float, phase: float = 0.0) -> Counter:
    """The readings of a counter that is updated periodically, which say nothing about the time between two updates.

    Args:
        phase: Share of a period that passes before the first update, 0 to 1.
    """
    curve = counter.curve
    first_s, last_s = float(curve.time_s[0]), float(curve.time_s[-1])
    updates = np.arange(first_s + phase * period_s, last_s, period_s)
    time_s = np.unique(np.concatenate([[first_s], updates, [last_s]]))
    energy_j = np.interp(time_s, curve.time_s, curve.energy_j)
    unknown_s = np.interp(time_s, curve.time_s, curve.unknown_s)
    return replace(counter, curve=EnergyCurve(time_s, energy_j, unknown_s, period_s))
