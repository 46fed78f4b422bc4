"""The demand of kernels in half precision and below: the board power at the default clock without a power cap.

Energy constants (physics/energy.py) count FLOPs and bytes. The power of boards with 700 to 1200 W depends on more: how
well tensor cores are supplied with data, the energy of caches, and the values of the data (zeros switch few
transistors). Trees learn the demand relative to the board's cap from measurements, with the same features as device
times.

A power reading at the cap means that the demand is at least the cap. The excess follows from the time: the cap lowers
the clock, so the same product takes longer than in a short burst, which ends before the cap takes effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu
from ...operations.operation_list import OperationList
from ..batches import asked_together
from ..contract import Regressor
from ..physics.energy import static_power_w
from ..physics.voltage import relative_voltage
from .basis import Basis, basis_of, generation_of, is_measured

_PYTORCH = "pytorch"
_LEAST_W, _MOST_OVER_CAP = 1.0, 2.0
_NEAR = ("9.", "10.", "12.")
"""Prefixes of the compute capabilities from Hopper on, whose power is like that of the measured GPUs. For older GPUs
the energy constants, which were fitted to networks, are better."""

POWER_NAMES = ("log_time_over_physics", "log_cap_per_rate")
"""Names of the features of power in addition to those of a family."""


@dataclass(frozen=True, eq=False)
class PowerDemand:
    """A learned model of the power demand of a variant.

    Args:
        gpus: Names of the GPUs whose power was measured.
        generations: Generation -> regressor of the log ratio of demand to the board's cap.
        other_generations: Regressor of the same ratio for all other generations.
        errors: Basis -> "power" and "energy" -> sorted absolute log errors on measurements that were left out.
    """

    gpus: frozenset[str]
    generations: Mapping[str, Regressor]
    other_generations: Regressor
    errors: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)

    def basis(self, gpu: GPU) -> Basis:
        """The basis of predictions for a GPU."""
        return basis_of(gpu, self.gpus, self.generations)

    def covers(self, gpu: GPU) -> bool:
        """Whether this can predict the power of a GPU."""
        return generation_of(gpu) in self.generations or gpu.compute_capability.startswith(_NEAR)

    def measured_like(self, gpu: GPU) -> GPU:
        """A measured GPU with the die of a GPU, whose power is predicted instead; the GPU itself if there is none."""
        same_die = [] if is_measured(gpu, self.gpus) else [find_gpu(name) for name in sorted(self.gpus)]
        return next((each for each in same_die if each.chip == gpu.chip), gpu)

    def demand_w(self, inputs: NDArray[np.float32], gpu: GPU) -> FloatArray:
        """Board power in watts without a cap at the default clock, shape (operations,).

        Args:
            inputs: Features of operations, see `power_inputs`.
            gpu: A GPU that this covers.
        """
        (found,) = self.demands_w([inputs], [gpu])
        return found

    def demands_w(self, inputs: Sequence[NDArray[np.float32]], gpus: Sequence[GPU]) -> list[FloatArray]:
        """See `demand_w`; for several GPUs, with the inputs and an answer for each."""
        regressors = [self.generations.get(generation_of(gpu), self.other_generations) for gpu in gpus]
        logs = asked_together(regressors, inputs)
        return [_bounded_w(np.exp(log_ratio), gpu) for log_ratio, gpu in zip(logs, gpus, strict=True)]


def _bounded_w(over_cap: FloatArray, gpu: GPU) -> FloatArray:
    least_w = static_power_w(gpu, float(gpu.boost_clock_mhz)) + _LEAST_W
    found: FloatArray = np.clip(over_cap, least_w / gpu.power_limit_w, _MOST_OVER_CAP) * gpu.power_limit_w
    return found


class Burst(NamedTuple):
    """Operations of one variant on a GPU, in a loop too short to meet the power cap.

    Args:
        physics_s: Device seconds by physics, shape (operations,).
        features: Features of the trees of device times, shape (operations, features of the family).
        device_s: Predicted device seconds, shape (operations,).
    """

    physics_s: FloatArray
    features: NDArray[np.float32]
    device_s: FloatArray


def power_inputs(burst: Burst, gpu: GPU) -> NDArray[np.float32]:
    """Features of the trees of power.

    Args:
        burst: Operations as PyTorch computes them.
        gpu: The GPU that they run on.

    Returns:
        Shape (operations, features of the family and two more).
    """
    rate = gpu.sms * gpu.boost_clock_mhz / 1e3
    cap = np.full(len(burst.device_s), np.log2(gpu.power_limit_w / rate))
    return np.column_stack([burst.features, np.log2(burst.device_s / burst.physics_s), cap]).astype(np.float32)


def as_pytorch(operations: OperationList) -> OperationList:
    """Operations with their implementation set to PyTorch, because engines' kernels are assumed to draw the same power.

    The same list if PyTorch computes all of them.
    """
    return operations.derived(_as_pytorch)


def _as_pytorch(operations: OperationList) -> OperationList:
    plain = OperationList(
        o if o.attributes["implementation"] == _PYTORCH else o.with_attributes(implementation=_PYTORCH)
        for o in operations
    )
    return operations if plain == operations else plain


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
    return _bounded_w((static_w + dynamic_w) / gpu.power_limit_w, gpu)


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
