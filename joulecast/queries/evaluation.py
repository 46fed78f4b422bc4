"""Predicting one job on one GPU over several clocks, and which clocks of a GPU are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from ..extraction import Job, network_of_job
from ..hardware import GPU, find_gpu, gpus
from ..hardware.host import find_host
from ..operations.inputs import Inputs, InputShape, batch_size_of
from ..operations.network import Network
from ..operations.operation import require_precision
from ..operations.operation_list import OperationList
from ..predictors.board.profile import profile_among
from ..predictors.contract import SharedModel
from ..predictors.model.shared import lists_asked_for
from ..predictors.networks.execution import EAGER, Execution
from ..predictors.networks.knowledge import OverClocks
from ..predictors.networks.memory import MemoryNeed
from ..predictors.networks.prepared import NetworkPredictor, over_gpus
from ..predictors.physics.precisions import fp64_in_fp32
from ..progress import paced

# Question: a job, and the GPUs, clocks, precisions and batch sizes to compare for it.


@dataclass(frozen=True)
class Variant:
    """The job in one precision and batch size."""

    network: Network
    precision: str
    batch_size: int | None  # Samples per iteration; None where the input has no batch dimension

    @cached_property
    def real_precisions(self) -> frozenset[str]:
        """The precisions that its operations run in."""
        return frozenset(operation.precision for operation in self.network.operations)


@dataclass(frozen=True)
class Question:
    """A job, and the ways to run it that are compared."""

    variants: tuple[Variant, ...]  # The job in each precision and batch size
    gpus: tuple[GPU, ...]
    named: bool  # Whether the user named the GPUs. Then a GPU that cannot run the job may be an error
    clocks: tuple[float, ...] | None = None  # Clocks to compare, in MHz; None for a grid of each GPU's own clocks
    power_limit_w: float | None = None  # Power cap of each GPU; None for its default
    # A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for each GPU's default.
    predictor: str | Path | None = None
    execution: Execution = EAGER  # How the job is run, and on which host

    @classmethod
    def of(
        cls,
        job: Job,
        gpus: str | GPU | Iterable[str | GPU] | None,
        clocks: float | Iterable[float] | None,
        batch_sizes: Iterable[int] | None,
        precision: str | Sequence[str],
        extract: Callable[[Job], Network] = network_of_job,
    ) -> Question:
        """Check what `joulecast.best` and `joulecast.sweep` are asked, and extract the model in each variant.

        `gpus`: GPUs to compare; None for the whole catalogue. `clocks`: Clocks to compare; None for a grid of each
        GPU's own clocks. `batch_sizes`: Batch sizes to compare; None for that of the job. `precision`: One precision or
        several, in place of the job's. `extract`: Function that lists the operations of a job's model. Raises
        InputError, UnknownNameError, ExtractionError, MissingDependencyError: as for `joulecast.best`.
        """
        chosen, named = _gpus(gpus)
        profile = profile_among(job.calibration, (gpu.name for gpu in chosen))
        execution = Execution.of(job.execution, find_host(job.host), profile)
        variants = tuple(_variants(job, precision, batch_sizes, extract))
        return cls(variants, chosen, named, _clocks(clocks), job.power_limit_w, job.predictor, execution)

    def execution_on(self, gpu: GPU) -> Execution:
        """How the job is run on one of the GPUs: a calibration is that of a single one."""
        profile = self.execution.profile
        return self.execution if profile is None else replace(self.execution, profile=profile.of_gpu(gpu.name))

    @property
    def has_several_batches(self) -> bool:
        """Whether several batch sizes are compared, for which values must be per sample."""
        return len({variant.batch_size for variant in self.variants}) > 1

    @property
    def has_batch(self) -> bool:
        """Whether the number of samples per iteration is known in every variant."""
        return all(variant.batch_size is not None for variant in self.variants)


def _gpus(asked: str | GPU | Iterable[str | GPU] | None) -> tuple[tuple[GPU, ...], bool]:
    if asked is None:
        return tuple(gpus().values()), False
    names = [asked] if isinstance(asked, str | GPU) else list(asked)
    if not names:
        raise InputError(
            "there is nothing to choose from", given="gpus = []", hint="omit gpus to compare the whole catalogue"
        )
    return tuple(dict.fromkeys(map(find_gpu, names))), True


def _clocks(asked: float | Iterable[float] | None) -> tuple[float, ...] | None:
    if asked is None:
        return None
    clocks = tuple(asked) if isinstance(asked, Iterable) else (asked,)
    if not clocks:
        raise InputError(
            "there is nothing to choose from", given="clocks = []", hint="omit clocks to compare a grid of clocks"
        )
    for clock in clocks:
        if isinstance(clock, bool) or not isinstance(clock, Real) or not 0 < clock < float("inf"):
            raise InputError("a clock is a positive number of MHz", given=repr(clock), allowed="such as 900")
    return tuple(map(float, clocks))


def _variants(
    job: Job, precision: str | Sequence[str], batch_sizes: Iterable[int] | None, extract: Callable[[Job], Network]
) -> Iterable[Variant]:
    precisions = [precision] if isinstance(precision, str) else list(dict.fromkeys(precision))
    if not precisions:
        raise InputError("there is nothing to choose from", given="precision = []", allowed="such as ['fp32', 'fp16']")
    for each in precisions:
        require_precision(each)
    shape = job.input_shape
    for one in paced([shape] if batch_sizes is None else [_with_batch(shape, n) for n in _batches(batch_sizes)]):
        for each in precisions:
            network = extract(replace(job, input_shape=one, precision=each))
            yield Variant(network, each, batch_size_of(network.input_shape))


def _batches(asked: Iterable[int]) -> list[int]:
    sizes = list(dict.fromkeys(asked))
    if not sizes or any(isinstance(n, bool) or not isinstance(n, Integral) or n < 1 for n in sizes):
        raise InputError("batch sizes are positive integers", given=repr(sizes), allowed="such as [1, 8, 32]")
    return list(map(int, sizes))


def _with_batch(input_shape: Any, batch_size: int) -> InputShape:
    """The input shape with another batch size, which is its first dimension."""
    if input_shape is None:
        raise InputError(
            "other batch sizes need a model and its input shape", given="none", allowed="a shape, batch first"
        )
    shape = Inputs.of(input_shape).shape
    if isinstance(shape, Mapping):
        return {name: (batch_size, *item[1:]) for name, item in shape.items()}
    if all(isinstance(item, int) for item in shape):
        return (batch_size, *shape[1:])
    return tuple((batch_size, *item[1:]) for item in shape if not isinstance(item, int))


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

    `clocks`: Clocks that the user chose; None for a grid. `refuse`: Whether a clock that the GPU cannot hold is an
    error; otherwise it is skipped. Raises InputError: `refuse` is set, and the GPU cannot hold one of the clocks.
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
    for shared, listed, boards in asked.values():
        shared.prefetch(listed, boards)


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
