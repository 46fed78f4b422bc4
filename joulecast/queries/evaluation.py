"""Predicting one job on one GPU over several clocks, and which clocks of a GPU are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import UnionType
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..checked import in_range
from ..errors import InputError
from ..extraction import Job, network_of_job
from ..hardware import GPU, find_gpu
from ..hardware import gpus as known
from ..hardware.host import find_host
from ..operations.inputs import Inputs, InputShape, batch_size_of
from ..operations.network import Network
from ..operations.operation import require_precision
from ..predictors.board.profile import profile_among
from ..predictors.networks.composition import Execution
from ..progress import paced

# Question: a job, and the GPUs, clocks, precisions and batch sizes to compare for it.


@dataclass(frozen=True)
class Variant:
    """The job in one precision and batch size."""

    network: Network
    precision: str
    batch_size: int | None  # Samples per iteration; None where the input has no batch dimension


@dataclass(frozen=True)
class Question:
    """A job, and the ways to run it that are compared."""

    job: Job
    variants: tuple[Variant, ...]  # The job in each precision and batch size
    gpus: tuple[GPU, ...]
    named: bool  # Whether the user named the GPUs. Then a GPU that cannot run the job may be an error
    clocks: tuple[float, ...] | None  # Clocks to compare, in MHz; None for a grid of each GPU's own clocks
    execution: Execution  # How the job is run, and on which host

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
        named = gpus is not None
        chosen = (
            tuple(dict.fromkeys(map(find_gpu, _listed("gpus", gpus, str | GPU)))) if named else tuple(known().values())
        )
        profile = profile_among(job.calibration, (gpu.name for gpu in chosen))
        execution = Execution.of(job.execution, find_host(job.host), profile)
        variants = tuple(_variants(job, precision, batch_sizes, extract))
        held = None
        if clocks is not None:
            held = tuple(in_range("clocks", clock, above=True) for clock in _listed("clocks", clocks, int | float))
        return cls(job, variants, chosen, named, held, execution)

    @property
    def batch_sizes(self) -> set[int | None]:
        """The batch sizes that are compared. Where there are several, values must be per sample."""
        return {variant.batch_size for variant in self.variants}


def _listed(name: str, asked: Any, one: type | UnionType) -> list[Any]:
    """One value or several as a list without repetitions. Raises InputError: there are none."""
    values = [asked] if isinstance(asked, one) else list(dict.fromkeys(asked))
    if not values:
        raise InputError(
            "there is nothing to choose from",
            given=f"{name} = []",
            allowed=f"{name} with at least one value",
            hint=f"omit {name} for the usual ones",
        )
    return values


def _variants(
    job: Job, precision: str | Sequence[str], batch_sizes: Iterable[int] | None, extract: Callable[[Job], Network]
) -> Iterable[Variant]:
    precisions = _listed("precision", precision, str)
    for each in precisions:
        require_precision(each)
    shapes = [job.input_shape]
    if batch_sizes is not None:
        sizes = [int(in_range("batch_sizes", size, 1, whole=True)) for size in _listed("batch_sizes", batch_sizes, int)]
        shapes = [_with_batch(job.input_shape, size) for size in sizes]
    for shape in paced(shapes):
        for each in precisions:
            network = extract(replace(job, input_shape=shape, precision=each))
            yield Variant(network, each, batch_size_of(network.input_shape))


def _with_batch(input_shape: Any, batch_size: int) -> InputShape:
    """The input shape with another batch size, which is its first dimension."""
    if input_shape is None:
        raise InputError(
            "other batch sizes need a model and its input shape",
            given="none",
            allowed="a shape, batch first",
            hint="give input_shape=(32, 3, 224, 224), say",
        )
    shape = Inputs.of(input_shape).shape
    if isinstance(shape, Mapping):
        return {name: (batch_size, *item[1:]) for name, item in shape.items()}
    if all(isinstance(item, int) for item in shape):
        return (batch_size, *shape[1:])
    return tuple((batch_size, *item[1:]) for item in shape if not isinstance(item, int))


MOST_CLOCKS = 40
_STEP_MHZ = 15.0  # The step between NVIDIA's clocks, for GPUs of which the catalogue does not state it.


@lru_cache(maxsize=256)
def clock_grid_mhz(gpu: GPU, most: int = MOST_CLOCKS) -> FloatArray:
    """At most `most` clocks that can be set, evenly spaced from the lowest to the highest, and the default clock.

    Those that can be set are equal steps from the highest downwards, according to the catalogue.
    """
    step = gpu.clock_step_mhz or _STEP_MHZ
    count = int((gpu.max_clock_mhz - gpu.min_clock_mhz) / step + 1e-6)
    steps: FloatArray = np.round(gpu.max_clock_mhz - step * np.arange(count, -1, -1.0))
    if len(steps) >= most:
        steps = steps[np.round(np.linspace(0, len(steps) - 1, most - 1)).astype(int)]
    grid: FloatArray = np.union1d(steps, [float(gpu.boost_clock_mhz)])
    grid.flags.writeable = False
    return grid


def held_clocks_mhz(
    gpu: GPU, clocks: Iterable[float] | None, *, refuse: bool = True, most: int = MOST_CLOCKS
) -> FloatArray:
    """The clocks at which a GPU is compared, ascending: those that are asked for, or a grid of at most so many.

    `refuse`: Whether a clock that the GPU cannot hold is an error; otherwise it is skipped. Raises InputError: `refuse`
    is set, and there are no clocks, or the GPU cannot hold one of them.
    """
    if clocks is None:
        return clock_grid_mhz(gpu, most)
    if refuse:
        return np.unique([gpu.checked_clock_mhz(clock) for clock in _listed("clocks", clocks, int | float)])
    return np.unique([float(clock) for clock in clocks if gpu.min_clock_mhz <= clock <= gpu.max_clock_mhz])
