"""Errors of times and powers of kernels on sizes, GPUs and generations that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation_list import OperationList
from ..intervals.conformal import conformal_error, conformal_rank
from ..kernels.basis import BASES, Basis, generation_of
from ..kernels.families import FAMILIES
from ..kernels.family import Family, Names
from ..kernels.fit import Measured, fit_variant
from ..kernels.fit_power import Readings, fit_power
from ..kernels.learned import Kernels
from ..recipes import KernelRecipe, KernelTrees

SPLITS = (
    "Measured: a fraction of the sizes is left out on all GPUs; for linear layers, a size is a pair of output and "
    "input features. Same generation: one GPU is left out, and others of its compute capability are not. Other "
    "generations: all GPUs of a compute capability are left out."
)
_LEFT_OUT_ROWS = 5_000  # Most rows of each GPU if whole GPUs are left out. More rows change the errors little.
_UNASKED = KernelTrees(trees=1, depth=1)
_MOST_ERRORS = 400  # Most errors that an entry stores for the intervals of a variant.
_LEVEL = 0.9

Table = TypeVar("Table", Measured, Readings)


@dataclass(frozen=True, eq=False)
class KernelErrors:
    """Errors of a variant on one GPU.

    Args:
        names: Family and variant.
        basis: The measurements that the predictions are based on.
        gpu: Full name of the GPU.
        log_errors: Quantity -> logarithms of predicted over measured values, shape (operations,): "time", or "power"
            and "energy", where the predicted energy is the predicted power times the predicted time of a burst.
        first: Whether an error is used to make intervals (True) or to test them (False), shape (operations,). It is
            the same for all operations of a size.
    """

    names: Names
    basis: Basis
    gpu: str
    log_errors: Mapping[str, FloatArray]
    first: NDArray[np.bool_]


class _Split(NamedTuple, Generic[Table]):
    """Tables of one variant that are learned from, and those that are predicted."""

    left_out: Literal["sizes", "a GPU", "a generation"]
    seen: list[Table]
    unseen: list[Table]


def _splits(family: Family, tables: Sequence[Table], recipe: KernelRecipe) -> Iterator[_Split[Table]]:
    """A fraction of the sizes, each GPU whose generation has others, and each generation; see SPLITS."""
    held = [drawn_by_size(family, table.operations, recipe.folds, recipe.seed) == 0 for table in tables]
    seen, unseen = (
        [table.some(np.flatnonzero(out == left_out)) for table, out in zip(tables, held, strict=True)]
        for left_out in (False, True)
    )
    yield _Split("sizes", seen, unseen)
    generations = [generation_of(table.gpu) for table in tables]
    for place, table in enumerate(tables):
        if generations.count(generations[place]) > 1:
            yield _Split("a GPU", [other for other in tables if other is not table], [table])
    for generation in sorted(set(generations)) if len(set(generations)) > 1 else ():
        others, mine = (
            [table for table, its in zip(tables, generations, strict=True) if (its == generation) is same]
            for same in (False, True)
        )
        yield _Split("a generation", others, mine)


def validate_kernels(measured: Mapping[Names, Sequence[Measured]], recipe: KernelRecipe) -> tuple[KernelErrors, ...]:
    """Errors of a recipe's device times on measurements that were left out, for each variant.

    Raises:
        MissingDependencyError: scipy or xgboost is not installed.
    """
    fewer = replace(recipe, most_rows=min(recipe.most_rows, _LEFT_OUT_ROWS))
    found = []
    for names, tables in measured.items():
        family = FAMILIES[names[0]]
        for left_out, seen, unseen in _splits(family, tables, recipe):
            # Models that a split does not need are not fitted.
            settings = replace(recipe if left_out == "sizes" else fewer, other_generations=_UNASKED)
            if left_out == "a GPU":
                mine = generation_of(unseen[0].gpu)
                seen = [table for table in seen if generation_of(table.gpu) == mine]
            elif left_out == "a generation":
                settings = replace(fewer, generation=_UNASKED)
            variant = fit_variant(family, seen, settings)
            for table in unseen:
                if len(table.device_s):
                    time = np.log(variant.device_s(family, table.operations, table.gpu) / table.device_s)
                    first = drawn_by_size(family, table.operations, 2, recipe.seed + 1) == 0
                    basis = variant.basis(table.gpu)
                    found.append(KernelErrors(names, basis, table.gpu.name, {"time": time}, first))
    return tuple(found)


def validate_power(
    kernels: Kernels, measured: Mapping[Names, Sequence[Readings]], recipe: KernelRecipe
) -> tuple[KernelErrors, ...]:
    """Errors of power on measurements that were left out, for each variant.

    Args:
        kernels: The model of device times in bursts.
        measured: Family and variant -> power readings, one table for each GPU.
        recipe: Settings.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    found = []
    for names, tables in measured.items():
        family, variant = FAMILIES[names[0]], kernels.variants[names]
        for _, seen, unseen in _splits(family, tables, recipe):
            learned = fit_power(seen, recipe)
            powered = replace(variant, power=learned)
            for table in unseen:
                if len(table.power_w):
                    bursts = {table.gpu: variant.burst(family, table.operations, table.gpu)}
                    demand_w = powered.demands_w(family, table.operations, bursts)[table.gpu]
                    power = np.log(np.minimum(demand_w, table.gpu.power_limit_w) / table.power_w)
                    errors = {"power": power, "energy": power + np.log(table.burst_s / table.measured_s)}
                    basis, first = learned.basis(table.gpu), np.ones(len(power), dtype=bool)
                    found.append(KernelErrors(names, basis, table.gpu.name, errors, first))
    return tuple(found)


def drawn_by_size(family: Family, operations: OperationList, count: int, seed: int) -> NDArray[np.int64]:
    """A random integer below `count` for each operation, the same for operations that are left out together.

    Args:
        family: The family of the operations, which says which of them are left out together.
        operations: The operations.
        count: Number of different integers.
        seed: Seed of the random numbers.
    """
    keys = [repr(family.unseen(operation)) for operation in operations]
    sizes = sorted(set(keys))
    drawn = dict(zip(sizes, np.random.default_rng(seed).integers(count, size=len(sizes)).tolist(), strict=True))
    return np.array([drawn[key] for key in keys])


def stored_errors(validation: Sequence[KernelErrors], names: Names) -> dict[str, dict[str, FloatArray]]:
    """Basis -> quantity -> sorted absolute log errors of a variant: up to 400 of them, at evenly spaced ranks."""
    found: dict[str, dict[str, FloatArray]] = {}
    for basis in BASES:
        mine = [each.log_errors for each in validation if (each.names, each.basis) == (names, basis)]
        for quantity in mine[0] if mine else ():
            errors = np.sort(np.abs(np.concatenate([each[quantity] for each in mine])))
            ranks = np.linspace(0, len(errors) - 1, min(len(errors), _MOST_ERRORS)).round().astype(int)
            found.setdefault(basis, {})[quantity] = errors[ranks]
    return found


def tables(validation: Sequence[KernelErrors]) -> dict[str, dict[str, tuple[int, float, float]]]:
    """Family and variant -> basis and GPU -> number of operations, median and mean absolute error of time or power."""
    found: dict[str, dict[str, tuple[int, float, float]]] = {}
    for each in validation:
        errors = np.abs(np.expm1(next(iter(each.log_errors.values()))))
        row = (len(errors), float(np.median(errors)), float(errors.mean()))
        found.setdefault(", ".join(each.names), {})[f"{each.basis}: {each.gpu}"] = row
    return found


def coverage(validation: Sequence[KernelErrors]) -> dict[str, dict[str, float]]:
    """Family and variant -> basis -> share of operations that lie within a 90 % interval made from other operations.

    If sizes were left out, the intervals are made from half of them, and tested on the other half. If GPUs were left
    out, the intervals of a GPU are made from the errors on the other GPUs.
    """
    found: dict[str, dict[str, float]] = {}
    for names in dict.fromkeys(each.names for each in validation):
        for basis in BASES:
            mine = [each for each in validation if (each.names, each.basis) == (names, basis)]
            pairs = _by_size(mine) if basis == "measured" else _by_gpu(mine)
            inside = [
                np.abs(tested) <= conformal_error(np.sort(np.abs(known)), _LEVEL, "operations that were left out")
                for known, tested in pairs
                if conformal_rank(_LEVEL, len(known)) <= len(known) and len(tested)
            ]
            if inside:
                found.setdefault(", ".join(names), {})[basis] = float(np.concatenate(inside).mean())
    return found


def _by_size(errors: Sequence[KernelErrors]) -> Iterator[tuple[FloatArray, FloatArray]]:
    known = [each.log_errors["time"][each.first] for each in errors]
    tested = [each.log_errors["time"][~each.first] for each in errors]
    if errors:
        yield np.concatenate(known), np.concatenate(tested)


def _by_gpu(errors: Sequence[KernelErrors]) -> Iterator[tuple[FloatArray, FloatArray]]:
    for one in errors:
        others = [each.log_errors["time"] for each in errors if each.gpu != one.gpu]
        if others:
            yield np.concatenate(others), one.log_errors["time"]
