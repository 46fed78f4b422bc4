"""Fitting the power of kernels to readings of boards, at their caps and below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..measured.device_rows import DeviceRow
from ..recipes.kernels import KernelRecipe, KernelTrees
from ..regressors.xgboost_model import BoostedRegressor, unfitted_trees
from .families import FAMILIES
from .family import Family, Names
from .learned import Kernels, Variant, variant_parts
from .power import PowerDemand, as_pytorch, demand_at_cap_w, power_inputs

LEAST_POWERS = 300
"""Readings of a variant below which its power is not learned."""

# Boards at their caps read 0.95 (GB200) to 0.99 (H200) of them.
_AT_CAP = 0.945
_SLOWEST = 1.4  # Times that are longer under the cap by more than this are those of other kernels.
_TREES = KernelTrees(trees=150, depth=6, min_child_weight=5.0)
_OTHER_GENERATIONS = KernelTrees(trees=100, depth=3, min_child_weight=20.0)


class Readings(NamedTuple):
    """Readings of a variant on one GPU, one value each.

    Args:
        gpu: The GPU that was measured.
        operations: What ran, as PyTorch would compute it.
        inputs: What trees see.
        log_demand: Log ratio of what the board would have drawn without a cap to the cap.
        power_w: What it drew.
        measured_s, burst_s: What it took, and what it is predicted to take in a burst.
    """

    gpu: GPU
    operations: OperationList
    inputs: NDArray[np.float32]
    log_demand: FloatArray
    power_w: FloatArray
    measured_s: FloatArray
    burst_s: FloatArray

    def some(self, places: NDArray[np.int64]) -> Readings:
        """The readings at these places."""
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
    """Readings by family and variant, GPU by GPU, of variants with enough of them.

    Args:
        kernels: Device times in bursts.
        rows: Device times with the power that the board drew meanwhile; those without one are left out.
    """
    found: dict[Names, list[Readings]] = defaultdict(list)
    by_gpu: dict[GPU, list[DeviceRow]] = defaultdict(list)
    for row in rows:
        if row.power_w is not None:
            by_gpu[row.gpu].append(row)
    for gpu, mine in sorted(by_gpu.items(), key=lambda item: item[0].name):
        for part in variant_parts(OperationList(row.operation for row in mine)):
            names = (part.family, part.variant)
            if names in kernels.variants:
                some = [mine[place] for place in part.places.tolist()]
                found[names].append(_readings(FAMILIES[part.family], kernels.variants[names], gpu, some))
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
    """What boards would have drawn without a cap.

    Args:
        gpu: The GPU that was measured.
        power_w: Readings.
        over_burst: Times that the readings were taken over, over those in a burst. An engine's kernel may be quicker or
            slower than PyTorch's for other reasons than the cap: what the readings below the cap show of that is taken
            off.
    """
    capped = power_w > _AT_CAP * gpu.power_limit_w
    other = float(np.median(over_burst[~capped])) if (~capped).any() else 1.0
    slower = np.clip(over_burst / other, 1.0, _SLOWEST)
    found: FloatArray = np.where(capped, demand_at_cap_w(gpu, slower), power_w)
    return found


def fit_power(tables: Sequence[Readings], recipe: KernelRecipe) -> PowerDemand:
    """Fit the power of a variant; errors are not known yet.

    Args:
        tables: Readings of this variant.
        recipe: How many of a GPU are used, and the seed.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    generations: dict[str, list[Readings]] = defaultdict(list)
    for table in tables:
        generations[table.gpu.compute_capability].append(_thinned(table, recipe))
    everything = [table for some in generations.values() for table in some]
    return PowerDemand(
        gpus=frozenset(table.gpu.name for table in tables),
        generations={name: _fitted(some, _TREES) for name, some in sorted(generations.items())},
        other_generations=_fitted(everything, _OTHER_GENERATIONS),
    )


def _thinned(table: Readings, recipe: KernelRecipe) -> Readings:
    return table.some(np.random.default_rng(recipe.seed).permutation(len(table.power_w))[: recipe.most_rows])


def _fitted(tables: Sequence[Readings], settings: KernelTrees) -> BoostedRegressor:
    inputs = np.concatenate([table.inputs for table in tables])
    targets = np.concatenate([table.log_demand for table in tables])
    # The median: some readings are of memory that held zeros.
    trees = unfitted_trees(settings, settings.trees, objective="reg:absoluteerror")
    return BoostedRegressor(trees.fit(inputs, targets))
