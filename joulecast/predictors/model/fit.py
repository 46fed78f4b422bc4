"""Fitting the one model: constants of physics first, then trees over all GPUs, and those of each generation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import needing, with_extra
from ...hardware import GPU, find_gpu
from ...operations.attributes import HALF_PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..recipes import KernelRecipe, TreeSettings
from ..regressors.fitted_trees import FittedTrees, rounded_quantile_loss, unfitted_trees
from .basis import ALL, Key, generation_of
from .features import features, first_kernels
from .learned import OneModel
from .machine import LANES, WAYS, Machine, way
from .parts import Parts, parts_of
from .physics import CONSTANTS, STARTS, costs
from .work import GROUPS, WIDTHS, Work

_USUAL_ERROR = 0.1  # Larger log errors count less than by their square, so that outliers do not shift the constants.
_COUNTED_AS = 400.0  # Measurements that all measurements together count as, beside one for each constant's start.
_SHOWS_LAUNCH = 3.0  # Times above this multiple of a launch do not determine it.
_FARTHEST = 2.5  # Most standard deviations between a constant and its start.
_ENOUGH_GENERATIONS, _FEW_WEIGHT = 3, 4.0
_LEAST_OF_WAY = 50  # Measurements of a way on a GPU below which they do not take part in the fit of constants.
_EVALUATIONS = 20
_STEP = 0.03  # Of the numerical derivative; it must be wider than the jumps at whole waves.
_LEAST_CONSTANTS_S = 2e-6  # Shorter times are those of a launch.
# Most measurements of a part on a GPU that trees over all GPUs learn from. With 24,000 they follow the measured GPUs
# too closely: networks on an A10, whose generation was not measured, were 20 to 27 % too slow instead of 3 %.
_SHARED_ROWS = 8_000
USUAL_TRUST = 0.5
"""Trust in the trees over all GPUs of a part that was measured on a single generation."""

LEAST_ROWS = 300
"""Measurements of a part below which it is not learned."""


@dataclass(frozen=True)
class Measured:
    """Measurements on one GPU.

    Args:
        gpu: The GPU that was measured.
        parts: The measured kernels.
        device_s: Device seconds, shape (kernels,). So are all columns that a class adds.
    """

    gpu: GPU
    parts: Parts
    device_s: FloatArray

    def some(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """The measurements of a mask, or at these indices."""
        columns = {each.name: getattr(self, each.name)[which] for each in fields(self)[2:]}
        return replace(self, parts=self.parts.some(which), **columns)

    def drawn(self, most: int, seed: int) -> Self:
        """At most so many measurements of each part, drawn at random."""
        rng, chosen = np.random.default_rng(seed), []
        for part in sorted(set(self.parts.names.tolist())):
            places = np.flatnonzero(self.parts.names == part)
            chosen.append(places if len(places) <= most else rng.choice(places, most, replace=False))
        found = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)
        return self if len(found) == len(self.device_s) else self.some(found)

    @property
    def kernels(self) -> OperationList:
        """The measured kernels."""
        return self.parts.kernels

    @property
    def generation(self) -> str:
        """The compute capability that the GPU's kernels were made for."""
        return generation_of(self.gpu)


Table = TypeVar("Table", bound=Measured)


def well_measured(tables: Sequence[Table], least: float) -> list[Table]:
    """The measurements of parts with at least so many in all tables together; tables without any are left out."""
    names, counts = np.unique(np.concatenate([[""], *(table.parts.names for table in tables)]), return_counts=True)
    found = [table.some(np.isin(table.parts.names, names[counts >= least])) for table in tables]
    return [table for table in found if len(table.device_s)]


def gpus_of_parts(tables: Sequence[Measured]) -> dict[str, frozenset[str]]:
    """Part -> names of the GPUs that it was measured on."""
    measured: dict[str, set[str]] = defaultdict(set)
    for table in tables:
        for part in set(table.parts.names.tolist()):
            measured[part].add(table.gpu.name)
    return {part: frozenset(names) for part, names in sorted(measured.items())}


def measured_tables(datasets: Iterable[Dataset]) -> list[Measured]:
    """Device times of datasets, with one table for each GPU; parts with too few measurements are left out.

    Operations of no part are left out, and so are products in half precision of vLLM: they leave the weights
    uninitialized, and if these are zero, a GPU draws less power and holds a higher clock. Sustained runs are left out,
    too: a power cap lowers their clock, and the clock law accounts for that (physics/clock.py). If an engine has
    several kernels for an operation, the quickest one counts, because a library is expected to call it.
    """
    gpus: dict[GPU, dict[Operation, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for dataset in datasets:
        times = gpus[find_gpu(dataset.card.gpu)]
        for m in dataset.measurements:
            if m.usable and m.device_time_s is not None and not m.sustained and _is_trusted(m.operation):
                times[m.operation][m.kernel].append(m.device_time_s)
    found = []
    for gpu, by_operation in sorted(gpus.items(), key=lambda item: item[0].name):
        seconds = np.array([min(map(median, kernels.values())) for kernels in by_operation.values()])
        parts = parts_of(OperationList(by_operation))
        parts = parts.some(parts.runs_on(gpu))
        found.append(Measured(gpu, parts.alone(), seconds[parts.places]))
    return well_measured(found, LEAST_ROWS)


def _is_trusted(operation: Operation) -> bool:
    by_vllm = operation.attributes.get("implementation") == "vllm"
    return not (operation.kind == "linear" and operation.precision in HALF_PRECISIONS and by_vllm)


def fit_one_model(tables: Sequence[Measured], recipe: KernelRecipe) -> OneModel:
    """Fit the one model to device times; errors, trust and power are not known yet.

    Raises:
        MissingDependencyError: scipy or xgboost is not installed.
    """
    constants = fit_constants(tables, recipe)
    many, few = (
        [table.drawn(min(recipe.most_rows, most), recipe.seed) for table in tables] for most in (10**9, _SHARED_ROWS)
    )
    trees = {
        **fit_trees(many, constants, recipe, {table.generation for table in tables}, shared=False),
        **fit_trees(few, constants, recipe, (), shared=True),
    }
    return model_of(tables, constants, trees)


def model_of(
    tables: Sequence[Measured], constants: FloatArray, trees: Mapping[Key, FittedTrees], trust: float = USUAL_TRUST
) -> OneModel:
    """The model that was fitted to tables."""
    gpus = gpus_of_parts(tables)
    return OneModel(constants=constants, trees=trees, measured=gpus, trust=dict.fromkeys(gpus, trust))


Examples = list[tuple[NDArray[np.float32], FloatArray]]
"""Of each GPU, what trees see of its kernels, shape (kernels, features), and what they learn, shape (kernels,)."""


def examples_by_key(
    tables: Iterable[tuple[str, NDArray[np.float32], FloatArray, NDArray[np.int64]]],
    generations: Collection[str],
    *,
    shared: bool,
) -> dict[Key, Examples]:
    """Examples for the trees of some generations, and for those over all GPUs if they are asked for.

    Each table has a GPU's generation, what trees see, what they learn, and the group of each kernel.
    """
    found: dict[Key, Examples] = defaultdict(list)
    for generation, inputs, targets, groups in tables:
        names = [*([generation] if generation in generations else []), *([ALL] if shared else [])]
        for group in np.unique(groups).tolist():
            mine = groups == group
            for name in names:
                found[name, GROUPS[group]].append((inputs[mine], targets[mine]))
    return dict(sorted(found.items()))


def fit_trees(
    tables: Sequence[Measured],
    constants: FloatArray,
    recipe: KernelRecipe,
    generations: Collection[str],
    *,
    shared: bool,
) -> dict[Key, FittedTrees]:
    """Fit the trees of some generations, and those over all GPUs if they are asked for.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    asked = [table for table in tables if shared or table.generation in generations]
    known = ((table.generation, *_examples(table, constants)) for table in asked)
    examples = examples_by_key(known, generations, shared=shared)
    return {key: _trees(some, recipe, key[0]) for key, some in examples.items()}


def _trees(examples: Examples, recipe: KernelRecipe, name: str) -> FittedTrees:
    settings: TreeSettings = recipe.other_generations if name == ALL else recipe.generation
    inputs, targets = (np.concatenate(columns) for columns in zip(*examples, strict=True))
    weights = None
    if name == ALL:
        # Each GPU counts with the root of its number of measurements, so that the most measured do not decide alone.
        each = np.concatenate([np.full(len(some), len(some) ** -0.5) for _, some in examples])
        weights = each / each.mean()
    loss = rounded_quantile_loss(recipe.quantile)
    trees = unfitted_trees(settings, settings.trees, objective=loss, base_score=0.0, max_bin=128)
    return FittedTrees(trees.fit(inputs, targets, sample_weight=weights))


def _examples(table: Measured, constants: FloatArray) -> tuple[NDArray[np.float32], FloatArray, NDArray[np.int64]]:
    """Features of a GPU's measurements, the log ratio of device time to physics, and the group of each."""
    machine, work, count = Machine.of(table.gpu), Work.of(table.kernels), len(table.device_s)
    found = costs(work, machine, constants)
    physics_s = np.maximum(np.bincount(work.place, found.time_s, count), 1e-6)
    rows = features(table.kernels, work, found, machine)
    return rows, np.log(table.device_s / physics_s), work.group[first_kernels(work, count)]


class _Sample(NamedTuple):
    """Measurements of a group, way and width on one GPU, to which constants are fitted."""

    work: Work
    machine: Machine
    log_s: FloatArray


def fit_constants(tables: Sequence[Measured], recipe: KernelRecipe) -> FloatArray:
    """Constants of physics that fit the measurements of all GPUs, shape (groups, ways, widths, constants).

    Constants that the measurements do not determine stay near their start, and so do those of ways that were measured
    on fewer generations than others: what was measured may be a property of one generation. A way that was not measured
    has the constants of the way that was measured on the most generations.

    Raises:
        MissingDependencyError: scipy is not installed.
    """
    samples: dict[tuple[int, int, int], list[_Sample]] = defaultdict(list)
    rng = np.random.default_rng(recipe.seed)
    for table in tables:
        machine, work = Machine.of(table.gpu), Work.of(table.kernels)
        first = work.some(first_kernels(work, len(table.device_s)))
        alike = np.array([first.group, way(first, machine), first.width])
        for which in np.unique(alike, axis=1).T.tolist():
            mine = (alike == np.array(which)[:, None]).all(axis=0) & (table.device_s > _LEAST_CONSTANTS_S)
            places = rng.permutation(np.flatnonzero(mine))[: recipe.constants_rows]
            if len(places) >= _LEAST_OF_WAY:
                some = table.some(places)
                group, by, width = which
                samples[group, by, width].append(_Sample(Work.of(some.kernels), machine, np.log(some.device_s)))
    generations: dict[tuple[int, int], set[str]] = defaultdict(set)
    for (group, _, width), some_of in samples.items():
        generations[group, width] |= {sample.machine.generation for sample in some_of}
    constants = STARTS.copy()
    for place, some_of in samples.items():
        few = _generations(some_of) < min(_ENOUGH_GENERATIONS, len(generations[place[0], place[2]]))
        constants[place] = _fitted_constants(place, some_of, _FEW_WEIGHT if few else 1.0)
    for group, width in np.ndindex(len(GROUPS), len(WIDTHS)):
        near = [each for each in samples if each[0] == group and each[2] == width]
        near = near or [each for each in samples if each[0] == group]
        if near:
            best = max(near, key=lambda place: (_generations(samples[place]), -place[1]))
            for by in range(LANES + 1, len(WAYS)):
                if (group, by, width) not in samples:
                    constants[group, by, width] = constants[best]
    return constants


def _generations(samples: Sequence[_Sample]) -> int:
    return len({sample.machine.generation for sample in samples})


def _fitted_constants(place: tuple[int, int, int], samples: Sequence[_Sample], prior: float) -> FloatArray:
    with needing("training needs scipy", with_extra("train")):
        from scipy.optimize import least_squares
    spread, tried = np.array([constant.spread for constant in CONSTANTS]), STARTS.copy()
    weight = np.sqrt(_COUNTED_AS / sum(len(sample.log_s) for sample in samples)) / _USUAL_ERROR

    def residuals(x: FloatArray) -> FloatArray:
        tried[place] = STARTS[place] * np.exp(x * spread)
        errors = []
        for sample in samples:
            seconds = costs(sample.work, sample.machine, tried).time_s
            summed = np.maximum(np.bincount(sample.work.place, seconds, len(sample.log_s)), 1e-9)
            errors.append(weight * (np.log(summed) - sample.log_s))
        return np.concatenate([*errors, prior * x])

    # A launch does not show in times that are much longer.
    shows = min(float(np.exp(sample.log_s.min())) for sample in samples) < _SHOWS_LAUNCH * STARTS[place][0]
    spread[0] *= shows
    start, limits = np.zeros(len(CONSTANTS)), (-_FARTHEST, _FARTHEST)
    found = least_squares(residuals, start, bounds=limits, loss="soft_l1", max_nfev=_EVALUATIONS, diff_step=_STEP)
    fitted: FloatArray = STARTS[place] * np.exp(found.x * spread)
    return fitted
