"""Errors of device time and power of kernels on sizes, GPUs and generations that were left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..intervals.conformal import conformal_error, conformal_rank, thinned
from ..model.basis import BASES, Basis, generation_of
from ..model.fit import Measured, fit_constants, fit_trees, model_of
from ..model.fit_power import Readings, fit_power
from ..model.learned import LEAST_S, OneModel
from ..model.parts import Parts
from ..recipes import KernelRecipe
from .left_out import TEXTS, Held, each_left_out

SPLITS = TEXTS["kernels"]
_LEFT_OUT_ROWS = 2_500  # Most rows of each part and GPU that are left out, or learned from if whole GPUs are left out.
_TRUSTS = np.linspace(0.0, 1.0, 6)
_MOST_ERRORS = 400  # Most errors that an entry stores for the intervals of a part.
_LEVEL = 0.9
_NONE, _NO_ENERGY = np.zeros(0, dtype=bool), np.zeros(0)


class PartErrors(NamedTuple):
    """Errors of a part on one GPU.

    Args:
        basis: The measurements that the predictions are based on.
        log_errors: Logarithms of predicted over measured device time, or of power; shape (kernels,).
        first: Of times, whether an error is used to make intervals (True) or to test them (False), the same for all
            kernels of a size; shape (kernels,).
        energy: Of powers, logarithms of predicted over measured energy; the predicted energy is the predicted power
            times the predicted time of a burst; shape (kernels,).
    """

    part: str
    basis: Basis
    gpu: str
    log_errors: FloatArray
    first: NDArray[np.bool_] = _NONE
    energy: FloatArray = _NO_ENERGY


@dataclass(frozen=True)
class Validation:
    """Errors of device time, and for each part how far the trees over all GPUs are trusted elsewhere."""

    times: tuple[PartErrors, ...]
    trust: Mapping[str, float]


def validate_kernels(tables: Sequence[Measured], recipe: KernelRecipe) -> Validation:
    """Errors of device time of a recipe on measurements that were left out, for each part.

    The constants of physics, eleven of each way to compute, are fitted once for all splits but those of generations.
    Raises MissingDependencyError: scipy or xgboost is not installed.
    """
    constants = fit_constants(tables, recipe)
    few = [table.drawn(min(_LEFT_OUT_ROWS, recipe.most_rows), recipe.seed) for table in tables]
    gpus = each_left_out([each.gpu.name for each in few], _gpu_left_out, few, constants, recipe, what="GPUs left out")
    generations = [table.generation for table in tables]
    judged = each_left_out(generations, _generation_left_out, few, recipe, what="generations left out")
    errors = [*sizes_left_out(tables, constants, recipe), *(each for _, errors in gpus for each in errors)]
    elsewhere = [each for _, errors in judged for each in errors]
    trusts: dict[str, list[FloatArray]] = defaultdict(list)
    for one, by_trust in elsewhere:
        trusts[one.part].append(np.abs(np.expm1(by_trust)).mean(axis=1))
    best = {part: int(np.mean(each, axis=0).argmin()) for part, each in trusts.items()}
    chosen = (one._replace(log_errors=by_trust[best[one.part]]) for one, by_trust in elsewhere)
    return Validation((*errors, *chosen), {part: float(_TRUSTS[place]) for part, place in best.items()})


def sizes_left_out(tables: Sequence[Measured], constants: FloatArray, recipe: KernelRecipe) -> list[PartErrors]:
    """Errors on sizes that were left out on all GPUs."""
    held = [drawn_by_size(table.kernels, table.parts, recipe.folds, recipe.seed) == 0 for table in tables]
    seen, unseen = (
        [table.some(np.flatnonzero(out == side)) for table, out in zip(tables, held, strict=True)]
        for side in (False, True)
    )
    drawn = [table.drawn(recipe.most_rows, recipe.seed) for table in seen]
    trees = fit_trees(drawn, constants, recipe, {table.generation for table in tables}, shared=False)
    few = [table.drawn(_LEFT_OUT_ROWS, recipe.seed) for table in unseen]
    return _errors(model_of(seen, constants, trees), few, recipe)


def _gpu_left_out(
    tables: Sequence[Measured], constants: FloatArray, recipe: KernelRecipe, held: Held
) -> list[PartErrors]:
    """Errors on a GPU, from others of its generation with enough measurements; none where there are none."""
    (mine,) = compress(tables, held)
    enough = (one.well_measured() for one in compress(tables, ~held) if one.generation == mine.generation)
    siblings = [one for one in enough if len(one.parts)]
    if not siblings:
        return []
    trees = fit_trees(siblings, constants, recipe, {mine.generation}, shared=False)
    return _errors(model_of(siblings, constants, trees), [mine], recipe)


def _generation_left_out(
    tables: Sequence[Measured], recipe: KernelRecipe, held: Held
) -> list[tuple[PartErrors, FloatArray]]:
    """Errors on a generation that was left out, each also for all of _TRUSTS, shape (trusts, kernels)."""
    mine, others = ([*compress(tables, side)] for side in (held, ~held))
    if not others:
        return []
    constants = fit_constants(others, recipe)
    model = model_of(others, constants, fit_trees(others, constants, recipe, (), shared=True), trust=1.0)
    plain = replace(model, trust=dict.fromkeys(model.trust, 0.0))
    pairs = zip(_errors(model, mine, recipe), _errors(plain, mine, recipe), strict=True)
    return [
        (whole, physics.log_errors + _TRUSTS[:, None] * (whole.log_errors - physics.log_errors))
        for whole, physics in pairs
    ]


def _errors(model: OneModel, unseen: Sequence[Measured], recipe: KernelRecipe) -> list[PartErrors]:
    found = []
    for table in unseen:
        known = np.flatnonzero(np.isin(table.parts, list(model.measured)))
        if not len(known):
            continue
        some = table.some(known)
        (burst,) = model.bursts([(as_parts(some), some.gpu)])
        log_errors = np.log(np.maximum(burst.device_s, LEAST_S) / some.device_s)
        first = drawn_by_size(some.kernels, some.parts, 2, recipe.seed + 1) == 0
        for part in sorted(set(some.parts.tolist())):
            mine = some.parts == part
            basis = model.basis(part, some.gpu)
            found.append(PartErrors(part, basis, some.gpu.name, log_errors[mine], first[mine]))
    return found


def as_parts(table: Measured) -> Parts:
    """Measured kernels as parts of a list that they are all of."""
    count = len(table.parts)
    return Parts(np.arange(count), table.kernels, table.parts, np.zeros(count, bool), np.zeros(count, bool))


def validate_power(model: OneModel, tables: Sequence[Readings], recipe: KernelRecipe) -> tuple[PartErrors, ...]:
    """Errors of power on measurements that were left out, for each part.

    Raises MissingDependencyError: xgboost is not installed.
    """
    generations = [generation_of(table.gpu) for table in tables]
    held = [drawn_by_size(t.parts.kernels, t.parts.names, recipe.folds, recipe.seed) == 0 for t in tables]
    seen = [table.some(~out) for table, out in zip(tables, held, strict=True)]
    unseen = [table.some(out) for table, out in zip(tables, held, strict=True)]
    found = [*_power_errors(model, seen, unseen, recipe, set(generations))]
    with_siblings = [t.gpu.name if generations.count(g) > 1 else None for t, g in zip(tables, generations, strict=True)]
    several = len(set(generations)) > 1
    for column, known in ((with_siblings, True), ([each if several else None for each in generations], False)):
        judged = each_left_out(column, _power_left_out, model, tables, recipe, known, what="power left out")
        found += [each for _, errors in judged for each in errors]
    return tuple(found)


def _power_left_out(
    model: OneModel, tables: Sequence[Readings], recipe: KernelRecipe, known: bool, held: Held
) -> list[PartErrors]:
    """Errors of power on GPUs that are left out, whose generation is known by others or not."""
    mine, others = ([*compress(tables, side)] for side in (held, ~held))
    return [*_power_errors(model, others, mine, recipe, {generation_of(mine[0].gpu)} if known else ())]


def _power_errors(
    model: OneModel,
    seen: Sequence[Readings],
    unseen: Sequence[Readings],
    recipe: KernelRecipe,
    generations: Sequence[str] | set[str],
) -> Iterator[PartErrors]:
    power = fit_power(seen, recipe, generations)
    for table in unseen:
        other = power.measured_like(table.gpu)
        asked: list[GPU] = [*dict.fromkeys((table.gpu, other))]
        bursts = dict(zip(asked, model.bursts([(table.parts, gpu) for gpu in asked]), strict=True))
        demand_w = power.demands_w({table.gpu: table.parts}, bursts, {table.gpu: other})[table.gpu]
        errors = np.log(np.minimum(demand_w, table.gpu.power_limit_w) / table.power_w)
        energy = errors + np.log(table.burst_s / table.measured_s)
        for part in sorted(set(table.parts.names.tolist()) & set(power.measured)):
            mine = table.parts.names == part
            yield PartErrors(part, power.basis(part, table.gpu), table.gpu.name, errors[mine], energy=energy[mine])


def drawn_by_size(kernels: OperationList, parts: NDArray[np.str_], count: int, seed: int) -> NDArray[np.int64]:
    """A random integer below `count` for each kernel, the same for kernels that are left out together."""
    keys = [f"{part}: {size_of(kernel)!r}" for kernel, part in zip(kernels, parts.tolist(), strict=True)]
    sizes = sorted(set(keys))
    drawn = dict(zip(sizes, np.random.default_rng(seed).integers(count, size=len(sizes)).tolist(), strict=True))
    return np.array([drawn[key] for key in keys], dtype=np.int64)


_LAYER_SIZES = {
    "linear": ("out_features",),
    "experts": ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel"),
    "conv2d": ("out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
}


def size_of(kernel: Operation) -> object:
    """What is left out together: the sizes of a layer or of heads, for any batch."""
    shapes = kernel.input_shapes
    values = tuple(kernel.attributes[name] for name in _LAYER_SIZES.get(kernel.kind, ()))
    match kernel.kind:
        case "linear" | "experts":
            return (shapes[0][-1], *values)
        case "conv2d":
            return (*shapes[0][1:], *values)
        case "attention":
            return tuple((shape[-3:-2], shape[-1]) for shape in shapes)
        case _:
            return shapes


def stored_errors(errors: Sequence[PartErrors], part: str, name: str = "log_errors") -> dict[str, FloatArray]:
    """Basis -> sorted absolute log errors of a part, thinned out for storage; `name` may also be "energy"."""
    found: dict[str, list[FloatArray]] = {basis: [] for basis in BASES}
    for each in errors:
        if each.part == part:
            found[each.basis].append(getattr(each, name))
    return {basis: thinned(np.abs(np.concatenate(e)), _MOST_ERRORS) for basis, e in found.items() if e}


def error_tables(errors: Sequence[PartErrors]) -> dict[str, dict[str, tuple[int, float, float]]]:
    """Part -> basis and GPU -> number of kernels, median and mean absolute error of device time, or of power."""
    found: dict[str, dict[str, tuple[int, float, float]]] = defaultdict(dict)
    for each in errors:
        sizes = np.abs(np.expm1(each.log_errors))
        found[each.part][f"{each.basis}: {each.gpu}"] = (len(sizes), float(np.median(sizes)), float(sizes.mean()))
    return dict(sorted(found.items()))


def coverage(validation: Validation) -> dict[str, dict[str, float]]:
    """Part -> basis -> share of kernels that lie within a 90 % interval made from others.

    If sizes were left out, the intervals are made from half of them, and tested on the other half. If GPUs were left
    out, the intervals of a GPU are made from the errors on the other GPUs.
    """
    found: dict[str, dict[str, float]] = {}
    for part in sorted({each.part for each in validation.times}):
        for basis in BASES:
            mine = [each for each in validation.times if (each.part, each.basis) == (part, basis)]
            if basis == "measured":
                pairs = [([e.log_errors[e.first] for e in mine], [e.log_errors[~e.first] for e in mine])]
            else:
                pairs = [([o.log_errors for o in mine if o.gpu != e.gpu], [e.log_errors]) for e in mine]
            inside = [_inside(*map(np.concatenate, pair)) for pair in pairs if all(pair)]
            if any(map(len, inside)):
                found.setdefault(part, {})[basis] = float(np.concatenate(inside).mean())
    return found


def _inside(known: FloatArray, tested: FloatArray) -> NDArray[np.bool_]:
    """Whether errors lie within the interval that others make; none if these are too few for one."""
    if conformal_rank(_LEVEL, len(known)) > len(known):
        return _NONE
    return np.abs(tested) <= conformal_error(np.sort(np.abs(known)), _LEVEL, "operations that were left out")
