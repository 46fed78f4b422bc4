"""The demand of kernels in half precision and below: the board power at the default clock without a power cap.

Energy constants (physics/energy.py) count FLOPs and bytes. The power of boards with 700 to 1200 W depends on more: how
well tensor cores are supplied with data, the energy of caches, and the values of the data (zeros switch few
transistors). Trees learn the demand relative to the board's cap from measurements, with the same features as device
times.

A power reading at the cap means that the demand is at least the cap. The excess follows from the time: the cap lowers
the clock, so the same product takes longer than in a short burst, which ends before the cap takes effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ..physics.energy import relative_voltage, static_power_w
from .basis import ALL, PartTrees, boards_of, generation_of, is_measured
from .parts import Parts
from .work import GROUPS

_LEAST_W, _MOST_OVER_CAP = 1.0, 2.0
_NEAR = ("9.", "10.", "12.")
"""Prefixes of the compute capabilities from Hopper on, whose power is like that of the measured GPUs. For older GPUs
the energy constants, which were fitted to networks, are better."""

POWER_NAMES = ("log_time_over_physics", "log_cap_per_rate")
"""Names of the features of power in addition to those of device times."""


class Burst(NamedTuple):
    """Kernels on a GPU in a short loop at the default clock; arrays of shape (kernels,).

    Args:
        physics_s: Device seconds by physics.
        features: What trees see of the kernels, shape (kernels, features).
        group: Group of each, as an index into GROUPS.
        device_s: Predicted device seconds.
        uncapped_s: Predicted device seconds if no power cap lowered the clock.
    """

    physics_s: FloatArray
    features: NDArray[np.float32]
    group: NDArray[np.int64]
    device_s: FloatArray
    uncapped_s: FloatArray

    def on_each(self) -> list[Burst]:
        """The kernels on each of several GPUs, for which arrays have the shape (gpus, kernels)."""
        rows = zip(self.physics_s, self.features, self.device_s, self.uncapped_s, strict=True)
        return [Burst(physics_s, seen, self.group, device_s, free_s) for physics_s, seen, device_s, free_s in rows]


@dataclass(frozen=True, eq=False, kw_only=True)
class PowerDemand(PartTrees):
    """A learned model of the power demand of kernels: its trees predict the log ratio of demand to the board's cap.

    There are errors of "power" and of "energy".
    """

    def covers(self, gpu: GPU) -> bool:
        """Whether this can predict the power of a GPU."""
        return bool(self.trees) and gpu.compute_capability.startswith(_NEAR)

    def measured_like(self, gpu: GPU) -> GPU:
        """A measured GPU with the die of a GPU, whose power is predicted instead; the GPU itself if there is none."""
        same_die = () if is_measured(gpu, self.gpus) else boards_of(self.gpus)
        return next((each for each in same_die if each.chip == gpu.chip), gpu)

    def demands_w(self, parts: Parts, bursts: Mapping[GPU, Burst], alike: Mapping[GPU, GPU]) -> dict[GPU, FloatArray]:
        """Board power in watts without a cap at the default clock.

        Args:
            parts: Kernels.
            bursts: GPU -> these kernels in a burst, for all GPUs in `alike`.
            alike: GPU -> the GPU whose power is predicted, for those that this covers.

        Returns:
            GPU -> watts, shape (kernels,); NaN for kernels whose power was not measured.
        """
        keys, tables, places = [], [], []
        logs = {other: np.full(len(parts.kernels), np.nan) for other in alike.values()}
        for gpu in logs:
            inputs, groups = power_inputs(bursts[gpu], gpu), bursts[gpu].group
            for part, group in dict.fromkeys(zip(parts.names.tolist(), groups.tolist(), strict=True)):
                mine = (parts.names == part) & (groups == group)
                near = part in self.measured and self.basis(part, gpu) != "other generations"
                key = generation_of(gpu) if near else ALL, GROUPS[group]
                # A layer of a single input is no product, and its power was not measured.
                if part in self.measured and key in self.trees:
                    keys.append(key)
                    tables.append(inputs[mine])
                    places.append((gpu, mine))
        for (gpu, mine), values in zip(places, self.ask(keys, tables), strict=True):
            logs[gpu][mine] = values
        found = {}
        for gpu, other in alike.items():
            other_w = within_range_w(np.exp(logs[other]), other)
            over = bursts[other].device_s / bursts[gpu].device_s
            found[gpu] = other_w if other == gpu else demand_of_same_die_w(gpu, other, other_w, over)
        return found


def within_range_w(over_cap: FloatArray, gpu: GPU) -> FloatArray:
    """Watts from a demand over the board's cap: above static power, and at most twice the cap."""
    least_w = static_power_w(gpu, float(gpu.boost_clock_mhz)) + _LEAST_W
    found: FloatArray = np.clip(over_cap, least_w / gpu.power_limit_w, _MOST_OVER_CAP) * gpu.power_limit_w
    return found


def power_inputs(burst: Burst, gpu: GPU) -> NDArray[np.float32]:
    """What trees of power see of kernels on a GPU, shape (kernels, features and two more)."""
    rate = gpu.sms * gpu.boost_clock_mhz / 1e3
    cap = np.full(len(burst.device_s), np.log2(gpu.power_limit_w / rate))
    return np.column_stack([burst.features, np.log2(burst.device_s / burst.physics_s), cap]).astype(np.float32)


def demand_of_same_die_w(gpu: GPU, other: GPU, other_w: FloatArray, other_over_own_s: FloatArray) -> FloatArray:
    """Board power in watts without a cap at the default clock, from the power of a GPU with the same die.

    Boards with the same die have the dynamic energy of an operation in common, not its power. An H100 has the die of an
    H200 but less bandwidth. It moves the same bytes in 1.4 times the time, so its power is lower. The energy of a
    switch is proportional to the square of the voltage, which the default clock of each board decides.

    Args:
        gpu: The GPU to predict for.
        other: The GPU with the same die.
        other_w: Power of the other GPU without a cap in watts, shape (operations,).
        other_over_own_s: Device time of the other GPU over that of the first, both in a burst, shape (operations,).
    """
    clock_mhz = float(gpu.boost_clock_mhz)
    static_w, other_static_w = static_power_w(gpu, clock_mhz), static_power_w(other, float(other.boost_clock_mhz))
    # Static power belongs to the die rather than to the board, so the larger of the two figures counts for the other.
    other_dynamic_w = np.maximum(other_w - max(static_w, other_static_w), 0.0)
    dynamic_w = other_dynamic_w * other_over_own_s * relative_voltage(other, clock_mhz) ** 2
    return within_range_w((static_w + dynamic_w) / gpu.power_limit_w, gpu)


def demand_at_cap_w(gpu: GPU, slower: FloatArray) -> FloatArray:
    """Board power in watts at the default clock without a cap, of work that the cap slows down by a factor.

    Under the cap the board runs at the clock f = default / slower, and draws its cap: P_cap = P_static(f) + E(f) /
    t(f). By the clock law (physics/clock.py), E is proportional to the square of the voltage and t to 1 / f. Solving
    for E / t at the default clock gives the demand.

    Args:
        gpu: The GPU.
        slower: Time under the cap over the time in a burst, at least 1, shape (operations,).
    """
    default = float(gpu.boost_clock_mhz)
    held = default / slower
    dynamic_w = (gpu.power_limit_w - static_power_w(gpu, held)) * slower / relative_voltage(gpu, held) ** 2
    found: FloatArray = static_power_w(gpu, default) + dynamic_w
    return found
