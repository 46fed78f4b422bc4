"""Power that kernels in half precision and below would draw at the default clock, if no cap held it back.

Energy constants (physics/energy.py) know FLOPs and bytes. Boards of 700 to 1200 W differ in more than that: how far
tensor cores are fed, what the caches between cost, and what the numbers are (a cache of zeros switches little). Trees
learn the demand over the board's cap from what was measured, from the same features as device times.

A reading at the cap says that the demand is at least that. By how much it is more shows in the time: the cap lowers
the clock, so that the same product takes longer than in a burst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..batches import asked_together
from ..contract import Regressor
from ..physics.energy import relative_voltage, static_power_w
from .basis import Basis, basis_of

_PYTORCH = "pytorch"
_LEAST_W, _MOST_OVER_CAP = 1.0, 2.0
_NEAR = ("9.", "10.", "12.")
"""Compute capabilities of generations that are like those whose power was measured: from Hopper on. On older ones the
energies of networks say more."""

POWER_NAMES = ("log_time_over_physics", "log_cap_per_rate")
"""What trees of power see beside the features of a family."""


@dataclass(frozen=True, eq=False)
class PowerDemand:
    """What was learned of the power of a variant.

    Args:
        gpus: Names of the GPUs whose power was measured.
        generations: Compute capability -> predicts the log ratio of demand to the board's cap there.
        other_generations: The same for other generations.
        errors: Basis -> "power" and "energy" -> sorted absolute log errors on what was left out.
    """

    gpus: frozenset[str]
    generations: Mapping[str, Regressor]
    other_generations: Regressor
    errors: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)

    def basis(self, gpu: GPU) -> Basis:
        """What predictions for a GPU rest on."""
        return basis_of(gpu, self.gpus, self.generations)

    def covers(self, gpu: GPU) -> bool:
        """Whether this says something about a GPU."""
        return gpu.compute_capability in self.generations or gpu.compute_capability.startswith(_NEAR)

    def demand_w(self, inputs: NDArray[np.float32], gpu: GPU) -> FloatArray:
        """Board power without a cap at the default clock, one value per row of inputs, of a GPU that this covers."""
        (found,) = self.demands_w([inputs], [gpu])
        return found

    def demands_w(self, inputs: Sequence[NDArray[np.float32]], gpus: Sequence[GPU]) -> list[FloatArray]:
        """The same for inputs on several GPUs, with one answer for each GPU."""
        regressors = [self.generations.get(gpu.compute_capability, self.other_generations) for gpu in gpus]
        return [_bounded_w(log, gpu) for log, gpu in zip(asked_together(regressors, inputs), gpus, strict=True)]


def _bounded_w(log_ratio: FloatArray, gpu: GPU) -> FloatArray:
    least_w = static_power_w(gpu, float(gpu.boost_clock_mhz)) + _LEAST_W
    found: FloatArray = np.clip(np.exp(log_ratio), least_w / gpu.power_limit_w, _MOST_OVER_CAP) * gpu.power_limit_w
    return found


class Burst(NamedTuple):
    """Operations of one variant on a GPU, in a loop too short to meet the power cap.

    Args:
        physics_s: What physics says that they take, shape (operations,).
        features: What trees of device times see, shape (operations, features of the family).
        device_s: What they are predicted to take, shape (operations,).
    """

    physics_s: FloatArray
    features: NDArray[np.float32]
    device_s: FloatArray


def power_inputs(burst: Burst, gpu: GPU) -> NDArray[np.float32]:
    """What trees of power see.

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
    """Operations as PyTorch computes them: the power of an engine's kernel is taken to be that of PyTorch's.

    The same list where PyTorch computes all of them.
    """
    return operations.derived(_as_pytorch)


def _as_pytorch(operations: OperationList) -> OperationList:
    plain = OperationList(map(_by_pytorch, operations))
    return operations if plain == operations else plain


def _by_pytorch(operation: Operation) -> Operation:
    if operation.attributes["implementation"] == _PYTORCH:
        return operation
    attributes = {**operation.attributes, "implementation": _PYTORCH}
    return Operation(
        operation.kind, operation.input_shapes, attributes, precision=operation.precision, mode=operation.mode
    )


def demand_at_cap_w(gpu: GPU, slower: FloatArray) -> FloatArray:
    """Power at the default clock without a cap, of work that the cap makes slower by a factor.

    At the clock that the cap allows, f = default / slower, the board draws its cap: static power and E(f) / t(f). With
    E proportional to the square of the voltage and t to 1 / f, both at the default clock follow (physics/clock.py).

    Args:
        gpu: The GPU that they run on.
        slower: Time under the cap over that in a burst, at least 1.
    """
    default = float(gpu.boost_clock_mhz)
    held = default / slower
    dynamic_w = (gpu.power_limit_w - static_power_w(gpu, held)) * slower / relative_voltage(gpu, held) ** 2
    found: FloatArray = static_power_w(gpu, default) + dynamic_w
    return found
