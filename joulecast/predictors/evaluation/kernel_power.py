"""Errors of the power of kernels on sizes, GPUs and generations that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import FloatArray
from ..kernels.basis import BASES, Basis, generation_of
from ..kernels.families import FAMILIES
from ..kernels.family import Names
from ..kernels.fit_power import Readings, fit_power
from ..kernels.learned import Kernels
from ..kernels.variant import Variant
from ..recipes import KernelRecipe
from .kernels import drawn_by_size, evenly_ranked


@dataclass(frozen=True, eq=False)
class PowerErrors:
    """Errors of a variant on one GPU.

    Args:
        names: Family and variant.
        basis: The measurements that the predictions are based on.
        gpu: Full name of the GPU.
        power: Logarithms of predicted over measured power, shape (operations,).
        energy: Logarithms of predicted over measured energy, shape (operations,); the predicted energy is the predicted
            power times the predicted time of a burst.
    """

    names: Names
    basis: Basis
    gpu: str
    power: FloatArray
    energy: FloatArray


def validate_power(
    kernels: Kernels, measured: Mapping[Names, Sequence[Readings]], recipe: KernelRecipe
) -> tuple[PowerErrors, ...]:
    """Errors on measurements that were left out, for each variant.

    Args:
        kernels: The model of device times in bursts.
        measured: Family and variant -> power readings, one table for each GPU.
        recipe: Settings.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    return tuple(
        errors
        for names, tables in measured.items()
        for errors in _of_variant(names, kernels.variants[names], tables, recipe)
    )


def _of_variant(
    names: Names, variant: Variant, tables: Sequence[Readings], recipe: KernelRecipe
) -> Iterator[PowerErrors]:
    family = FAMILIES[names[0]]
    held = [drawn_by_size(family, table.operations, recipe.folds, recipe.seed) == 0 for table in tables]
    seen = [table.some(np.flatnonzero(~out)) for table, out in zip(tables, held, strict=True)]
    unseen = [table.some(np.flatnonzero(out)) for table, out in zip(tables, held, strict=True)]
    yield from _errors(names, variant, seen, unseen, recipe)
    generations = {generation_of(table.gpu) for table in tables}
    for table in tables:
        others = [other for other in tables if other.gpu.name != table.gpu.name]
        if any(generation_of(other.gpu) == generation_of(table.gpu) for other in others):
            yield from _errors(names, variant, others, [table], recipe)
    for generation in sorted(generations) if len(generations) > 1 else ():
        others = [table for table in tables if generation_of(table.gpu) != generation]
        mine = [table for table in tables if generation_of(table.gpu) == generation]
        yield from _errors(names, variant, others, mine, recipe)


def _errors(
    names: Names, variant: Variant, seen: Sequence[Readings], unseen: Sequence[Readings], recipe: KernelRecipe
) -> Iterator[PowerErrors]:
    learned = fit_power(seen, recipe)
    family, powered = FAMILIES[names[0]], replace(variant, power=learned)
    for table in unseen:
        if len(table.power_w):
            bursts = {table.gpu: variant.burst(family, table.operations, table.gpu)}
            demand_w = powered.demands_w(family, table.operations, bursts)[table.gpu]
            power = np.log(np.minimum(demand_w, table.gpu.power_limit_w) / table.power_w)
            energy = power + np.log(table.burst_s / table.measured_s)
            yield PowerErrors(names, learned.basis(table.gpu), table.gpu.name, power, energy)


def stored_power_errors(validation: Sequence[PowerErrors], names: Names) -> dict[str, dict[str, FloatArray]]:
    """Basis -> "power" and "energy" -> sorted absolute log errors of a variant, thinned out for storage."""
    found: dict[str, dict[str, FloatArray]] = {}
    for basis in BASES:
        mine = [each for each in validation if (each.names, each.basis) == (names, basis)]
        if mine:
            found[basis] = {
                "power": evenly_ranked(np.sort(np.abs(np.concatenate([each.power for each in mine])))),
                "energy": evenly_ranked(np.sort(np.abs(np.concatenate([each.energy for each in mine])))),
            }
    return found


def power_tables(validation: Sequence[PowerErrors]) -> dict[str, dict[str, tuple[int, float, float]]]:
    """Family and variant -> basis and GPU -> number of operations, median and mean absolute error of power."""
    found: dict[str, dict[str, tuple[int, float, float]]] = {}
    for each in validation:
        errors = np.abs(np.expm1(each.power))
        row = (len(errors), float(np.median(errors)), float(errors.mean()))
        found.setdefault(", ".join(each.names), {})[f"{each.basis}: {each.gpu}"] = row
    return found
