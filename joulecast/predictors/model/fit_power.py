"""Fitting the power of kernels to power readings of boards, at their caps and below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..measured import DeviceRow
from ..recipes import KernelRecipe, TreeSettings
from ..regressors.fitted_trees import FittedTrees, unfitted_trees
from .basis import ALL
from .fit import Measured, examples_by_key, gpus_of_parts, well_measured
from .learned import OneModel
from .parts import Parts, parts_of
from .power import PowerDemand, demand_at_cap_w, power_inputs

LEAST_POWERS = 300
"""Readings of a part below which its power is not learned."""

# Share of the cap from which a reading counts as being at the cap. Boards at their caps read 0.95 (GB200) to 0.99
# (H200).
_AT_CAP = 0.945
_SLOWEST = 1.4  # A larger factor between the times under the cap and in a burst means that other kernels ran.
_TREES = TreeSettings(trees=150, depth=6, subsample=0.8, min_child_weight=5.0)
_ALL_TREES = TreeSettings(trees=100, depth=3, subsample=0.8, min_child_weight=20.0)


@dataclass(frozen=True)
class Readings(Measured):
    """Power readings on one GPU; arrays have one value for each reading.

    Args:
        group: Group of each, as an index into GROUPS.
        inputs: What the trees see, shape (readings, features).
        log_demand: Log ratio of the power without a cap to the cap.
        power_w: Measured board power in watts.
        burst_s: Predicted seconds in a burst.
    """

    group: NDArray[np.int64]
    inputs: NDArray[np.float32]
    log_demand: FloatArray
    power_w: FloatArray
    burst_s: FloatArray


def readings(model: OneModel, rows: Sequence[DeviceRow], recipe: KernelRecipe) -> list[Readings]:
    """Power readings, one table for each GPU; parts with too few of them are left out.

    Args:
        model: The model of device times in bursts.
        rows: Measured device times, with the board power in the meantime; rows without a power are left out.
        recipe: Settings: the most readings of a part on a GPU, and the seed.
    """
    by_gpu: dict[GPU, list[DeviceRow]] = defaultdict(list)
    for row in rows:
        if row.power_w is not None:
            by_gpu[row.gpu].append(row)
    found = []
    for gpu, mine in sorted(by_gpu.items(), key=lambda item: item[0].name):
        parts = parts_of(OperationList(row.operation for row in mine))
        parts = parts.some(_drawn(parts, model.known(parts, gpu), recipe))
        if len(parts.kernels):
            found.append(_readings(model, gpu, parts, [mine[place] for place in parts.places.tolist()]))
    return well_measured(found, LEAST_POWERS)


def _drawn(parts: Parts, known: NDArray[np.bool_], recipe: KernelRecipe) -> NDArray[np.bool_]:
    drawn, rng = np.zeros(len(known), dtype=bool), np.random.default_rng(recipe.seed)
    for name in sorted(set(parts.names.tolist())):
        drawn[rng.permutation(np.flatnonzero(known & (parts.names == name)))[: recipe.most_rows]] = True
    return drawn


def _readings(model: OneModel, gpu: GPU, parts: Parts, rows: Sequence[DeviceRow]) -> Readings:
    burst = model.burst(parts, gpu)
    measured_s = np.array([row.device_s for row in rows])
    power_w = np.array([row.power_w for row in rows], dtype=float)
    log_demand = np.empty(len(rows))
    for name in set(parts.names.tolist()):
        mine = parts.names == name
        demand = demand_w(gpu, power_w[mine], measured_s[mine] / burst.device_s[mine])
        log_demand[mine] = np.log(demand / gpu.power_limit_w)
    inputs = power_inputs(burst, gpu)
    return Readings(gpu, parts, measured_s, burst.group, inputs, log_demand, power_w, burst.device_s)


def demand_w(gpu: GPU, power_w: FloatArray, over_burst: FloatArray) -> FloatArray:
    """Board power in watts without a cap, derived from readings of a part, shape (readings,).

    Args:
        gpu: The GPU that was measured.
        power_w: Power readings in watts, shape (readings,).
        over_burst: Measured time over the predicted time in a burst, shape (readings,). A kernel may be quicker or
            slower than the predicted one for other reasons than the cap. The median of the readings below the cap
            shows by how much, and all ratios are divided by it.
    """
    capped = power_w > _AT_CAP * gpu.power_limit_w
    other = float(np.median(over_burst[~capped])) if (~capped).any() else 1.0
    slower = np.clip(over_burst / other, 1.0, _SLOWEST)
    found: FloatArray = np.where(capped, demand_at_cap_w(gpu, slower), power_w)
    return found


def fit_power(tables: Sequence[Readings], recipe: KernelRecipe, generations: Collection[str]) -> PowerDemand:
    """Fit the power of kernels; errors are not known yet.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    known = ((table.generation, table.inputs, table.log_demand, table.group) for table in tables)
    trees = {}
    for key, examples in examples_by_key(known, generations, shared=True).items():
        settings = _ALL_TREES if key[0] == ALL else _TREES
        inputs, targets = (np.concatenate(columns) for columns in zip(*examples, strict=True))
        # The absolute error gives the median. Some readings are too low, because the memory held zeros.
        unfitted = unfitted_trees(settings, settings.trees, objective="reg:absoluteerror")
        trees[key] = FittedTrees(unfitted.fit(inputs, targets))
    return PowerDemand(trees=trees, measured=gpus_of_parts(tables))
