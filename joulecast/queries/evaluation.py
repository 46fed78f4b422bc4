"""Predicting one job on one GPU over several clocks, and which clocks of a GPU are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.network import Network
from ..operations.operation_list import OperationList
from ..predictors.contract import SharedModel
from ..predictors.model.predictor import lists_asked_for
from ..predictors.networks.memory import MemoryNeed
from ..predictors.networks.network_predictor import NetworkPredictor
from ..predictors.networks.over_clocks import OverClocks
from ..predictors.networks.prepared import over_gpus
from ..predictors.physics.precisions import fp64_in_fp32
from .question import Variant

MOST_CLOCKS = 40
_STEP_MHZ = 15.0  # The step between NVIDIA's clocks, for GPUs of which the catalogue does not state it.


def supported_clocks_mhz(gpu: GPU) -> FloatArray:
    """The clocks that can be set according to the catalogue: equal steps from the highest downwards."""
    step = gpu.clock_step_mhz or _STEP_MHZ
    count = int((gpu.max_clock_mhz - gpu.min_clock_mhz) / step + 1e-6)
    steps: FloatArray = np.round(gpu.max_clock_mhz - step * np.arange(count, -1, -1.0))
    return steps


@lru_cache(maxsize=256)
def clock_grid_mhz(gpu: GPU, most: int = MOST_CLOCKS) -> FloatArray:
    """At most `most` clocks that can be set, evenly spaced from the lowest to the highest, and the default clock."""
    steps = supported_clocks_mhz(gpu)
    if len(steps) >= most:
        steps = steps[np.round(np.linspace(0, len(steps) - 1, most - 1)).astype(int)]
    grid: FloatArray = np.union1d(steps, [float(gpu.boost_clock_mhz)])
    grid.flags.writeable = False
    return grid


def held_clocks_mhz(gpu: GPU, clocks: Iterable[float] | None, refuse: bool) -> FloatArray:
    """The clocks at which a GPU is compared, ascending.

    `clocks`: Clocks that the user chose; None for a grid.
    `refuse`: Whether a clock that the GPU cannot hold is an error; otherwise it is skipped.

    Raises:
        InputError: `refuse` is set, and the GPU cannot hold one of the clocks.
    """
    if clocks is None:
        return clock_grid_mhz(gpu)
    asked = list(clocks)
    if refuse:
        return np.unique([gpu.checked_clock_mhz(clock) for clock in asked])
    return np.unique([float(clock) for clock in asked if gpu.min_clock_mhz <= clock <= gpu.max_clock_mhz])


@dataclass(frozen=True)
class Curve:
    """The predictions of one job on one GPU, over ascending clocks."""

    gpu: GPU  # The GPU that the job runs on
    variant: Variant  # The job in one precision and batch size
    memory: MemoryNeed  # Device memory that the job needs
    over: OverClocks  # The predictions, as arrays with one value per clock

    @property
    def name(self) -> str:
        """Short name of the GPU, with precision and batch size."""
        batch = "" if self.variant.batch_size is None else f", batch {self.variant.batch_size}"
        return f"{self.gpu.aliases[0]} ({self.variant.precision}{batch})"

    @property
    def clocks_mhz(self) -> FloatArray:
        """The graphics clocks that are set, shape (clocks,)."""
        return self.over.clocks_mhz

    @property
    def time_s(self) -> FloatArray:
        """Seconds per iteration, shape (clocks,)."""
        return self.over.time_s

    @property
    def energy_j(self) -> FloatArray:
        """Joules per iteration, shape (clocks,)."""
        return self.over.energy_j

    @property
    def power_w(self) -> FloatArray:
        """Mean board power over an iteration."""
        return self.energy_j / self.time_s


def prefetch(predictors: Iterable[NetworkPredictor], network: Network) -> None:
    """Predict a network on all GPUs of the predictors for any GPU in one batch, before it is needed on each."""
    asked: dict[tuple[int, int], tuple[SharedModel, OperationList, list[GPU]]] = {}
    for predictor in predictors:
        gpu = predictor.operations.gpu
        for shared in predictor.operations.shared_models:
            for operations in lists_asked_for(network.operations, gpu):
                listed = operations.derived(fp64_in_fp32)
                asked.setdefault((id(shared), id(listed)), (shared, listed, []))[2].append(gpu)
    for shared, listed, gpus in asked.values():
        shared.prefetch(listed, gpus)


class ClockJob(NamedTuple):
    """A job on the GPU of a predictor, at each of some clocks in MHz."""

    predictor: NetworkPredictor
    variant: Variant
    memory: MemoryNeed
    clocks_mhz: FloatArray


def curves(jobs: Sequence[ClockJob], power_limit_w: float | None) -> list[Curve]:
    """Predict jobs on their GPUs. Raises InputError: a GPU cannot hold a clock or the cap."""
    prepared = [one.predictor.prepared(one.variant.network, power_limit_w) for one in jobs]
    predicted = over_gpus([(network, one.clocks_mhz) for network, one in zip(prepared, jobs, strict=True)])
    return [
        Curve(one.predictor.operations.gpu, one.variant, one.memory, over)
        for one, over in zip(jobs, predicted, strict=True)
    ]
