"""Fitting the device times of kernels: constants of physics for each generation first, then trees to the residuals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import MissingDependencyError, with_extra
from ...hardware import GPU, find_gpu
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..recipes import KernelRecipe, KernelTrees
from ..regressors.fitted_trees import FittedTrees, unfitted_trees
from .basis import generation_of
from .families import FAMILIES
from .family import Family, Names
from .learned import Kernels
from .parts import variant_parts
from .variant import ALL, Variant

_CONSTANTS_ROWS = 1000  # Measurements of each GPU in the fit of constants; more change them less than GPUs differ.
_USUAL_ERROR = 0.1  # Larger log errors count less than by their square, so that outliers do not shift the constants.
_EVALUATIONS = 15
_LEAST_OF_LIBRARY = 60  # Measurements of a library on a GPU below which its constants are not fitted.
_LIBRARY_GENERATIONS = 3  # Generations that must have been measured with a library for constants of its own.
LEAST_ROWS = 300
"""Measurements of a variant below which it is not learned."""


class Measured(NamedTuple):
    """Measurements of a variant on one GPU.

    Args:
        gpu: The GPU that was measured.
        operations: The measured operations.
        device_s: Device seconds, shape (operations,).
    """

    gpu: GPU
    operations: OperationList
    device_s: FloatArray

    def some(self, places: NDArray[np.int64]) -> Measured:
        """The measurements at these indices."""
        return Measured(
            self.gpu, OperationList(self.operations[place] for place in places.tolist()), self.device_s[places]
        )


def by_variant(datasets: Iterable[Dataset]) -> dict[Names, list[Measured]]:
    """Device times of datasets by family and variant, with one table for each GPU.

    Operations of no family are left out, and so are those that their family does not learn from. Sustained runs are
    left out, too: a power cap lowers their clock, and the clock law accounts for that (physics/clock.py). If an engine
    has several kernels for an operation, the quickest one counts, because a library is expected to call it.
    """
    gpus: dict[GPU, dict[Operation, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for dataset in datasets:
        times = gpus[find_gpu(dataset.card.gpu)]
        for m in dataset.measurements:
            if m.usable and m.device_time_s is not None and not m.sustained:
                times[m.operation][m.kernel].append(m.device_time_s)
    found: dict[Names, list[Measured]] = defaultdict(list)
    for gpu, times in sorted(gpus.items(), key=lambda item: item[0].name):
        operations, seconds = OperationList(times), np.array([_quickest(kernels) for kernels in times.values()])
        for part in variant_parts(operations):
            family = FAMILIES[part.learned_names[0]]
            learned = [family.learns_from(operation) for operation in part.operations]
            table = Measured(gpu, part.operations, seconds[part.places]).some(np.flatnonzero(learned))
            if len(table.device_s):
                found[part.learned_names].append(table)
    return dict(found)


def _quickest(kernels: Mapping[str, Sequence[float]]) -> float:
    return min(median(times) for times in kernels.values())


def fit_kernels(measured: Mapping[Names, Sequence[Measured]], recipe: KernelRecipe) -> Kernels:
    """Fit every variant with enough measurements; errors are not known yet.

    Raises:
        MissingDependencyError: scipy or xgboost is not installed.
    """
    return Kernels(
        {
            names: fit_variant(FAMILIES[names[0]], tables, recipe)
            for names, tables in measured.items()
            if sum(len(table.device_s) for table in tables) >= LEAST_ROWS
        }
    )


def fit_variant(family: Family, tables: Sequence[Measured], recipe: KernelRecipe) -> Variant:
    """Fit one variant of a family to the measurements of GPUs.

    Raises:
        MissingDependencyError: scipy or xgboost is not installed.
    """
    thinned = [_thinned(table, recipe.most_rows, recipe.seed) for table in tables]
    generations: dict[str, list[Measured]] = defaultdict(list)
    for table in thinned:
        generations[generation_of(table.gpu)].append(table)
    constants = {name: fit_constants(family, some, recipe.seed) for name, some in sorted(generations.items())}
    examples = {name: [_examples(family, table, constants[name]) for table in generations[name]] for name in constants}
    general = _general(family, thinned)
    of_each = list(constants.values())
    of_all = of_each[0] if len(of_each) == 1 else fit_constants(family, general, recipe.seed)
    together = [_examples(family, table, of_all) for table in general]
    return Variant(
        gpus=frozenset(table.gpu.name for table in tables),
        constants={**constants, ALL: of_all},
        generations={name: _trees(some, recipe.generation, recipe.quantile) for name, some in examples.items()},
        other_generations=_trees(together, recipe.other_generations, recipe.quantile),
        errors={},
    )


def _general(family: Family, tables: Sequence[Measured]) -> list[Measured]:
    """The measurements that other generations learn from. If one generation was measured, these are all."""
    if len({generation_of(table.gpu) for table in tables}) == 1:
        return list(tables)
    places = [np.flatnonzero([family.transfers(operation) for operation in table.operations]) for table in tables]
    return [table.some(some) for table, some in zip(tables, places, strict=True) if len(some)]


def fit_constants(family: Family, tables: Sequence[Measured], seed: int) -> FloatArray:
    """Values of the constants of a family's physics that fit measurements best, shape (libraries, constants).

    A library gets constants of its own if three generations were measured with it, or all of the tables. Otherwise what
    was measured may be a property of one generation. Such libraries get the constants that fit all libraries best. With
    generations left out, the mean error of attention was 25.3 % with this rule, 25.8 % if two generations sufficed,
    26.7 % if one did, and 26.2 % with the same constants for all libraries.

    Raises:
        MissingDependencyError: scipy is not installed.
    """
    together = _fitted_constants(family, tables, seed)
    if len(family.libraries) == 1:
        return together[None]
    libraries = [family.library(table.operations, table.gpu) for table in tables]
    needed = min(_LIBRARY_GENERATIONS, len({generation_of(table.gpu) for table in tables}))
    found = []
    for number in range(len(family.libraries)):
        places = [np.flatnonzero(library == number) for library in libraries]
        mine = [t.some(some) for t, some in zip(tables, places, strict=True) if len(some) >= _LEAST_OF_LIBRARY]
        enough = mine and len({generation_of(table.gpu) for table in mine}) >= needed
        found.append(_fitted_constants(family, mine, seed) if enough else together)
    return np.array(found)


def _fitted_constants(family: Family, tables: Sequence[Measured], seed: int) -> FloatArray:
    """Values of the constants that fit all operations of tables best, shape (constants,)."""
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise MissingDependencyError("training needs scipy", hint=with_extra("train")) from error
    few = [_thinned(table, _CONSTANTS_ROWS, seed) for table in tables]
    logs = np.log(np.concatenate([table.device_s for table in few]))

    def errors(log_constants: FloatArray) -> FloatArray:
        values = np.exp(log_constants)
        seconds = [family.physics_s(table.operations, table.gpu, values) for table in few]
        found: FloatArray = np.log(np.concatenate(seconds)) - logs
        return found

    start, low, high = np.log([[c.start, c.low, c.high] for c in family.constants]).T
    # The steps of the numerical derivative must be wider than the jumps at whole waves.
    best = least_squares(
        errors, start, bounds=(low, high), loss="soft_l1", f_scale=_USUAL_ERROR, diff_step=1e-3, max_nfev=_EVALUATIONS
    )
    found: FloatArray = np.exp(best.x)
    return found


def _thinned(table: Measured, most: int, seed: int) -> Measured:
    if len(table.device_s) <= most:
        return table
    chosen = np.random.default_rng(seed).choice(len(table.device_s), most, replace=False)
    return table.some(np.sort(chosen))


def _examples(family: Family, table: Measured, constants: FloatArray) -> tuple[NDArray[np.float32], FloatArray]:
    """Features of the trees, and their targets: the log ratio of device time to the time by physics."""
    physics_s = family.by_library_s(table.operations, table.gpu, constants)
    return family.features(table.operations, table.gpu, physics_s), np.log(table.device_s / physics_s)


def _trees(
    examples: Sequence[tuple[NDArray[np.float32], FloatArray]], settings: KernelTrees, quantile: float
) -> FittedTrees:
    inputs, targets = (np.concatenate(columns) for columns in zip(*examples, strict=True))
    trees = unfitted_trees(settings, settings.trees, objective="reg:quantileerror", quantile_alpha=quantile)
    return FittedTrees(trees.fit(inputs, targets))
