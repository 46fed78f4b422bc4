"""Fitting the power of kernels to power readings of boards, at their caps and below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..measured.rows import DeviceRow
from ..recipes import KernelRecipe, KernelTrees
from ..regressors.fitted_trees import FittedTrees, unfitted_trees
from .basis import generation_of
from .families import FAMILIES
from .family import Family, Names
from .learned import Kernels
from .parts import variant_parts
from .power import PowerDemand, as_pytorch, demand_at_cap_w, power_inputs
from .variant import Variant

LEAST_POWERS = 300
"""Readings of a variant below which its power is not learned."""

# Share of the cap from which a reading counts as being at the cap. Boards at their caps read 0.95 (GB200) to 0.99
# (H200).
_AT_CAP = 0.945
_SLOWEST = 1.4  # A larger factor between the times under the cap and in a burst means that other kernels ran.
_TREES = KernelTrees(trees=150, depth=6, min_child_weight=5.0)
_OTHER_GENERATIONS = KernelTrees(trees=100, depth=3, min_child_weight=20.0)


class Readings(NamedTuple):
    """Power readings of a variant on one GPU; arrays have one value for each reading.

    Args:
        gpu: The GPU that was measured.
        operations: The measured operations, with their implementation set to PyTorch.
        inputs: Features of the trees, shape (readings, features).
        log_demand: Log ratio of the power without a cap to the cap, shape (readings,).
        power_w: Measured board power in watts, shape (readings,).
        measured_s, burst_s: Measured seconds, and predicted seconds in a burst, shape (readings,).
    """

    gpu: GPU
    operations: OperationList
    inputs: NDArray[np.float32]
    log_demand: FloatArray
    power_w: FloatArray
    measured_s: FloatArray
    burst_s: FloatArray

    def some(self, places: NDArray[np.int64]) -> Readings:
        """The readings at these indices."""
        return Readings(
            gpu=self.gpu,
            operations=OperationList(self.operations[place] for place in places.tolist()),
            inputs=self.inputs[places],
            log_demand=self.log_demand[places],
            power_w=self.power_w[places],
            measured_s=self.measured_s[places],
            burst_s=self.burst_s[places],
        )


def readings(kernels: Kernels, rows: Sequence[DeviceRow]) -> dict[Names, list[Readings]]:
    """Power readings by family and variant, with one table for each GPU; variants with too few readings are left out.

    Args:
        kernels: The model of device times in bursts.
        rows: Measured device times, with the board power in the meantime; rows without a power are left out.
    """
    found: dict[Names, list[Readings]] = defaultdict(list)
    by_gpu: dict[GPU, list[DeviceRow]] = defaultdict(list)
    for row in rows:
        if row.power_w is not None:
            by_gpu[row.gpu].append(row)
    for gpu, mine in sorted(by_gpu.items(), key=lambda item: item[0].name):
        for part in variant_parts(OperationList(row.operation for row in mine)):
            names = part.learned_names
            if names in kernels.variants:
                some = [mine[place] for place in part.places.tolist()]
                found[names].append(_readings(FAMILIES[names[0]], kernels.variants[names], gpu, some))
    return {names: tables for names, tables in found.items() if sum(len(t.power_w) for t in tables) >= LEAST_POWERS}


def _readings(family: Family, variant: Variant, gpu: GPU, rows: Sequence[DeviceRow]) -> Readings:
    operations = as_pytorch(OperationList(row.operation for row in rows))
    burst = variant.burst(family, operations, gpu)
    measured_s = np.array([row.device_s for row in rows])
    power_w = np.array([row.power_w for row in rows], dtype=float)
    log_demand = np.log(demand_w(gpu, power_w, measured_s / burst.device_s) / gpu.power_limit_w)
    inputs = power_inputs(burst, gpu)
    return Readings(gpu, operations, inputs, log_demand, power_w, measured_s, burst.device_s)


def demand_w(gpu: GPU, power_w: FloatArray, over_burst: FloatArray) -> FloatArray:
    """Board power in watts without a cap, derived from readings, shape (readings,).

    Args:
        gpu: The GPU that was measured.
        power_w: Power readings in watts, shape (readings,).
        over_burst: Measured time over the predicted time in a burst, shape (readings,). An engine's kernel may be
            quicker or slower than PyTorch's for other reasons than the cap. The median of the readings below the cap
            shows by how much, and all ratios are divided by it.
    """
    capped = power_w > _AT_CAP * gpu.power_limit_w
    other = float(np.median(over_burst[~capped])) if (~capped).any() else 1.0
    slower = np.clip(over_burst / other, 1.0, _SLOWEST)
    found: FloatArray = np.where(capped, demand_at_cap_w(gpu, slower), power_w)
    return found


def fit_power(tables: Sequence[Readings], recipe: KernelRecipe) -> PowerDemand:
    """Fit the power of a variant; errors are not known yet.

    Args:
        tables: Readings of this variant, one table for each GPU.
        recipe: Settings: the largest number of readings of a GPU, and the seed.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    generations: dict[str, list[Readings]] = defaultdict(list)
    for table in tables:
        generations[generation_of(table.gpu)].append(_thinned(table, recipe))
    everything = [table for some in generations.values() for table in some]
    return PowerDemand(
        gpus=frozenset(table.gpu.name for table in tables),
        generations={name: _fitted(some, _TREES) for name, some in sorted(generations.items())},
        other_generations=_fitted(everything, _OTHER_GENERATIONS),
    )


def _thinned(table: Readings, recipe: KernelRecipe) -> Readings:
    return table.some(np.random.default_rng(recipe.seed).permutation(len(table.power_w))[: recipe.most_rows])


def _fitted(tables: Sequence[Readings], settings: KernelTrees) -> FittedTrees:
    inputs = np.concatenate([table.inputs for table in tables])
    targets = np.concatenate([table.log_demand for table in tables])
    # The absolute error gives the median. Some readings are too low, because the memory held zeros.
    trees = unfitted_trees(settings, settings.trees, objective="reg:absoluteerror")
    return FittedTrees(trees.fit(inputs, targets))
