"""Measured loops, from which a GPU's own predictor learns: one row per operation, with the median of its repeats."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ...datasets import Dataset, Measurement
from ...hardware import GPU
from ...operations.operation import Operation
from ..physics.baseline import Baseline, Loops
from ..physics.roofline import tiled_roofline


@dataclass(frozen=True)
class MeasuredLoop:
    """Medians over the repeats of one operation by one method; power is None where no reading is usable."""

    operation: Operation
    method: str
    time_s: float
    power_w: float | None


def measured_loops(dataset: Dataset, mode: str, without: Collection[Operation] = ()) -> list[MeasuredLoop]:
    """The usable loops of a mode. Timings without the host are not loops.

    There is one loop per operation, by the most used method. For an operation that this method did not measure, there
    is one per other method. Otherwise other methods are ignored, because their host costs differ.

    Args:
        dataset: Measurements of one GPU.
        mode: inference or training.
        without: Operations to leave out, with all their repeats.
    """
    left_out = frozenset(without)
    groups: dict[tuple[Operation, str], list[Measurement]] = defaultdict(list)
    for measurement in dataset.usable(mode):
        if measurement.method not in dataset.card.without_host and measurement.operation not in left_out:
            groups[measurement.operation, measurement.method].append(measurement)
    loops = []
    for (operation, method), group in groups.items():
        powers_w = [m.power_w for m in group if m.power_usable and m.power_w is not None]
        time_s = median(m.time_s for m in group)
        loops.append(MeasuredLoop(operation, method, time_s, median(powers_w) if powers_w else None))
    main = Counter(loop.method for loop in loops).most_common(1)[0][0] if loops else ""
    by_main = {loop.operation for loop in loops if loop.method == main}
    return [loop for loop in loops if loop.method == main or loop.operation not in by_main]


def as_arrays(loops: Sequence[MeasuredLoop]) -> Loops:
    """Times and powers as arrays; NaN where there is no power."""
    powers_w = [np.nan if loop.power_w is None else loop.power_w for loop in loops]
    return Loops(np.array([loop.time_s for loop in loops]), np.array(powers_w))


def fit_baseline(loops: Sequence[MeasuredLoop], gpu: GPU, accumulates_gradients: Collection[str]) -> Baseline:
    """Determine the constants of each kind from measured loops.

    Args:
        loops: Measured loops, at least one of them with power.
        gpu: The GPU that they were measured on, at its default clock.
        accumulates_gradients: Methods whose loop accumulates gradients.
    """
    operations = [loop.operation for loop in loops]
    arrays = as_arrays(loops)
    return Baseline.fit(
        operations,
        arrays,
        ~np.isnan(arrays.power_w),
        [loop.method for loop in loops],
        tiled_roofline(operations, gpu, float(gpu.boost_clock_mhz)).time_s,
        gpu,
        frozenset(accumulates_gradients),
    )
