"""Errors of device times of kernels on sizes, GPUs and generations that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation_list import OperationList
from ..intervals.conformal import conformal_error, conformal_rank
from ..kernels.basis import BASES, Basis, generation_of
from ..kernels.families import FAMILIES
from ..kernels.family import Family, Names
from ..kernels.fit import Measured, fit_variant
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


@dataclass(frozen=True, eq=False)
class KernelErrors:
    """Errors of a variant on one GPU.

    Args:
        names: Family and variant.
        basis: The measurements that the predictions are based on.
        gpu: Full name of the GPU.
        log_errors: Logarithms of predicted over measured device time, shape (operations,).
        first: Whether an error is used to make intervals (True) or to test them (False), shape (operations,). It is
            the same for all operations of a size.
    """

    names: Names
    basis: Basis
    gpu: str
    log_errors: FloatArray
    first: NDArray[np.bool_]


def validate_kernels(measured: Mapping[Names, Sequence[Measured]], recipe: KernelRecipe) -> tuple[KernelErrors, ...]:
    """Errors of a recipe on measurements that were left out, for each variant.

    Raises:
        MissingDependencyError: scipy or xgboost is not installed.
    """
    return tuple(
        errors
        for names, tables in measured.items()
        for errors in _of_variant(names, FAMILIES[names[0]], tables, recipe)
    )


def _of_variant(
    names: Names, family: Family, tables: Sequence[Measured], recipe: KernelRecipe
) -> Iterator[KernelErrors]:
    held = [drawn_by_size(family, table.operations, recipe.folds, recipe.seed) == 0 for table in tables]
    seen = [table.some(np.flatnonzero(~out)) for table, out in zip(tables, held, strict=True)]
    unseen = [table.some(np.flatnonzero(out)) for table, out in zip(tables, held, strict=True)]
    # Models that a split does not need are not fitted.
    yield from _errors(names, family, seen, unseen, replace(recipe, other_generations=_UNASKED))
    fewer = replace(recipe, most_rows=min(recipe.most_rows, _LEFT_OUT_ROWS))
    generations = {generation_of(table.gpu) for table in tables}
    for table in tables:
        generation = generation_of(table.gpu)
        siblings = [other for other in tables if generation_of(other.gpu) == generation and other is not table]
        if siblings:
            yield from _errors(names, family, siblings, [table], replace(fewer, other_generations=_UNASKED))
    for generation in sorted(generations) if len(generations) > 1 else ():
        others = [table for table in tables if generation_of(table.gpu) != generation]
        mine = [table for table in tables if generation_of(table.gpu) == generation]
        yield from _errors(names, family, others, mine, replace(fewer, generation=_UNASKED))


def _errors(
    names: Names, family: Family, seen: Sequence[Measured], unseen: Sequence[Measured], recipe: KernelRecipe
) -> Iterator[KernelErrors]:
    variant = fit_variant(family, seen, recipe)
    for table in unseen:
        if len(table.device_s):
            log_errors = np.log(variant.device_s(family, table.operations, table.gpu) / table.device_s)
            first = drawn_by_size(family, table.operations, 2, recipe.seed + 1) == 0
            yield KernelErrors(names, variant.basis(table.gpu), table.gpu.name, log_errors, first)


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


def stored_errors(validation: Sequence[KernelErrors], names: Names) -> dict[str, FloatArray]:
    """Basis -> sorted absolute log errors of a variant, thinned out for storage."""
    found: dict[str, FloatArray] = {}
    for basis in BASES:
        mine = [np.abs(each.log_errors) for each in validation if (each.names, each.basis) == (names, basis)]
        if mine:
            found[basis] = evenly_ranked(np.sort(np.concatenate(mine)))
    return found


def evenly_ranked(errors: FloatArray) -> FloatArray:
    """Up to 400 of some sorted errors, at evenly spaced ranks."""
    if len(errors) <= _MOST_ERRORS:
        return errors
    some: FloatArray = errors[np.linspace(0, len(errors) - 1, _MOST_ERRORS).round().astype(int)]
    return some


def tables(validation: Sequence[KernelErrors]) -> dict[str, dict[str, tuple[int, float, float]]]:
    """Family and variant -> basis and GPU -> number of operations, median and mean absolute error of device time."""
    found: dict[str, dict[str, tuple[int, float, float]]] = {}
    for each in validation:
        errors = np.abs(np.expm1(each.log_errors))
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
            inside = [np.abs(tested) <= _width(known) for known, tested in pairs if _enough(known) and len(tested)]
            if inside:
                found.setdefault(", ".join(names), {})[basis] = float(np.concatenate(inside).mean())
    return found


def _by_size(errors: Sequence[KernelErrors]) -> Iterator[tuple[FloatArray, FloatArray]]:
    known = [each.log_errors[each.first] for each in errors]
    tested = [each.log_errors[~each.first] for each in errors]
    if errors:
        yield np.concatenate(known), np.concatenate(tested)


def _by_gpu(errors: Sequence[KernelErrors]) -> Iterator[tuple[FloatArray, FloatArray]]:
    for one in errors:
        others = [each.log_errors for each in errors if each.gpu != one.gpu]
        if others:
            yield np.concatenate(others), one.log_errors


def _enough(errors: FloatArray) -> bool:
    return conformal_rank(_LEVEL, len(errors)) <= len(errors)


def _width(errors: FloatArray) -> float:
    return conformal_error(np.sort(np.abs(errors)), _LEVEL, "operations that were left out")
