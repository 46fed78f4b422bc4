"""Errors of device time and power of kernels on sizes, GPUs and generations that were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import find_gpu
from ...operations.operation import Operation
from ..intervals.conformal import conformal_error, conformal_rank, thinned
from ..model.basis import BASES, PartTrees, generation_of
from ..model.fit import LEAST_ROWS, Measured, fit_constants, fit_trees, model_of, well_measured
from ..model.fit_power import Readings, fit_power
from ..model.learned import LEAST_S, OneModel
from ..model.parts import Parts
from ..recipes import KernelRecipe
from .calibrating import LEVEL, covered, width_of
from .errors import Coverage, Errors, Validation
from .left_out import TEXTS, Held, each_left_out, sides

SPLITS = TEXTS["kernels"]
_LEFT_OUT_ROWS = 2_500  # Most rows of each part and GPU that are left out, or learned from if whole GPUs are left out.
_TRUSTS = np.linspace(0.0, 1.0, 6)
# Two generations say too little about a third. For point-wise kernels, which sizes were drawn moved the trust from 0 to
# 1, and with it networks on an A10 became 5 to 19 % too slow.
_ENOUGH_GENERATIONS = 3
_MOST_ERRORS = 400  # Most errors that an entry stores for the intervals of a part.


def validate_kernels(tables: Sequence[Measured], recipe: KernelRecipe) -> tuple[Validation, dict[str, float]]:
    """Errors of device time of a recipe on measurements that were left out, and how far each part's trees are trusted.

    In the table, "split" is the basis of a prediction, "what" the part of the model, and "first" whether an error is
    used to make intervals (True) or to test them (False), the same for all kernels of a size. Trust is that of trees
    over all GPUs on other generations. The constants of physics, eleven of each way to compute, are fitted once for all
    splits but those of generations. Raises MissingDependencyError: scipy or xgboost is not installed.
    """
    constants = fit_constants(tables, recipe)
    few = [table.drawn(min(_LEFT_OUT_ROWS, recipe.most_rows), recipe.seed) for table in tables]
    gpus = each_left_out([each.gpu.name for each in few], _gpu_left_out, few, constants, recipe, what="GPUs left out")
    generations = [table.generation for table in tables]
    judged = each_left_out(generations, _generation_left_out, few, recipe, what="generations left out")
    errors = [sizes_left_out(tables, constants, recipe), *(each for _, each in gpus)]
    elsewhere = Errors.joined([each for _, each in judged])
    trust = {}
    for part, mine in elsewhere.groups("what"):
        of_gpus = [
            [np.abs(np.expm1(_trusting(each, share))).mean() for share in _TRUSTS] for _, each in mine.groups("where")
        ]
        judged_on = {generation_of(find_gpu(name)) for name in mine["where"].tolist()}
        best = float(_TRUSTS[int(np.mean(of_gpus, axis=0).argmin())])
        trust[part] = best if len(judged_on) >= _ENOUGH_GENERATIONS else 0.0
    if len(elsewhere):
        trusted = _trusting(elsewhere, np.array([trust[part] for part in elsewhere["what"].tolist()]))
        errors.append(replace(elsewhere, predicted={"time": elsewhere.measured["time"] * np.exp(trusted)}))
    return Validation("kernels", Errors.joined(errors)), trust


def _trusting(errors: Errors, trust: FloatArray | float) -> FloatArray:
    """Log errors where trees over all GPUs are trusted so far, between those of physics alone and of trees."""
    found: FloatArray = errors["physics"] + trust * (errors.log_errors("time") - errors["physics"])
    return found


def sizes_left_out(tables: Sequence[Measured], constants: FloatArray, recipe: KernelRecipe) -> Errors:
    """Errors on sizes that were left out on all GPUs."""
    held = [drawn_by_size(table.parts, recipe.folds, recipe.seed) == 0 for table in tables]
    seen, unseen = ([t.some(out == side) for t, out in zip(tables, held, strict=True)] for side in (False, True))
    drawn = [table.drawn(recipe.most_rows, recipe.seed) for table in seen]
    trees = fit_trees(drawn, constants, recipe, {table.generation for table in tables}, shared=False)
    few = [table.drawn(_LEFT_OUT_ROWS, recipe.seed) for table in unseen]
    return _errors(model_of(seen, constants, trees), few, recipe)


def _gpu_left_out(tables: Sequence[Measured], constants: FloatArray, recipe: KernelRecipe, held: Held) -> Errors:
    """Errors on a GPU, from others of its generation with enough measurements; none where there are none."""
    (mine,), others = sides(tables, held)
    # Each GPU needs at least half as many measurements of a part as all of them together.
    enough = (well_measured([one], LEAST_ROWS / 2) for one in others if one.generation == mine.generation)
    siblings = [one for some in enough for one in some]
    if not siblings:
        return Errors()
    trees = fit_trees(siblings, constants, recipe, {mine.generation}, shared=False)
    return _errors(model_of(siblings, constants, trees), [mine], recipe)


def _generation_left_out(tables: Sequence[Measured], recipe: KernelRecipe, held: Held) -> Errors:
    """Errors on a generation that was left out, and in the column "physics" the log errors without trees."""
    mine, others = sides(tables, held)
    if not others:
        return Errors()
    constants = fit_constants(others, recipe)
    model = model_of(others, constants, fit_trees(others, constants, recipe, (), shared=True), trust=1.0)
    plain = replace(model, trust=dict.fromkeys(model.trust, 0.0))
    whole, physics = _errors(model, mine, recipe), _errors(plain, mine, recipe)
    return whole.having({"physics": physics.log_errors("time")}) if len(whole) else whole


def _errors(model: OneModel, unseen: Sequence[Measured], recipe: KernelRecipe) -> Errors:
    found = []
    for table in unseen:
        some = table.some(np.isin(table.parts.names, list(model.measured)))
        if len(some.device_s):
            burst = model.burst(some.parts, some.gpu)
            predicted = {"time": np.maximum(burst.device_s, LEAST_S)}
            errors = _table(model, some, {"time": some.device_s}, predicted)
            found.append(errors.having({"first": drawn_by_size(some.parts, 2, recipe.seed + 1) == 0}))
    return Errors.joined(found)


def _table(model: PartTrees, table: Measured, *known: Mapping[str, FloatArray]) -> Errors:
    """Errors on what is known of kernels of measured parts, split by the basis of their predictions."""
    parts, gpu = table.parts.names, table.gpu
    bases = {part: model.basis(part, gpu) for part in set(parts.tolist()) if part in model.measured}
    split = [bases.get(part, "") for part in parts.tolist()]
    return Errors.of_operations(split, gpu.name, table.kernels, *known, what=parts).where(np.isin(parts, list(bases)))


def validate_power(model: OneModel, tables: Sequence[Readings], recipe: KernelRecipe) -> Errors:
    """Errors of power and energy on measurements that were left out; the predicted energy is the power times a burst.

    Raises MissingDependencyError: xgboost is not installed.
    """
    generations = [table.generation for table in tables]
    held = [drawn_by_size(table.parts, recipe.folds, recipe.seed) == 0 for table in tables]
    seen = [table.some(~out) for table, out in zip(tables, held, strict=True)]
    unseen = [table.some(out) for table, out in zip(tables, held, strict=True)]
    found = [_power_errors(model, seen, unseen, recipe, set(generations))]
    with_siblings = [t.gpu.name if generations.count(g) > 1 else None for t, g in zip(tables, generations, strict=True)]
    several = len(set(generations)) > 1
    for column, known in ((with_siblings, True), ([each if several else None for each in generations], False)):
        judged = each_left_out(column, _power_left_out, model, tables, recipe, known, what="power left out")
        found += [errors for _, errors in judged]
    return Errors.joined(found)


def _power_left_out(
    model: OneModel, tables: Sequence[Readings], recipe: KernelRecipe, known: bool, held: Held
) -> Errors:
    """Errors of power on GPUs that are left out, whose generation is known by others or not."""
    mine, others = sides(tables, held)
    return _power_errors(model, others, mine, recipe, {mine[0].generation} if known else ())


def _power_errors(
    model: OneModel,
    seen: Sequence[Readings],
    unseen: Sequence[Readings],
    recipe: KernelRecipe,
    generations: Sequence[str] | set[str],
) -> Errors:
    power, found = fit_power(seen, recipe, generations), []
    for table in unseen:
        other = power.measured_like(table.gpu)
        bursts = {gpu: model.burst(table.parts, gpu) for gpu in (table.gpu, other)}
        demand_w = power.demands_w(table.parts, bursts, {table.gpu: other})[table.gpu]
        predicted_w = np.minimum(demand_w, table.gpu.power_limit_w)
        measured = {"power": table.power_w, "energy": table.power_w * table.device_s}
        predicted = {"power": predicted_w, "energy": predicted_w * table.burst_s}
        found.append(_table(power, table, measured, predicted))
    return Errors.joined(found)


def drawn_by_size(parts: Parts, count: int, seed: int) -> NDArray[np.int64]:
    """A random integer below `count` for each kernel, the same for kernels that are left out together."""
    keys = [f"{part}: {size_of(kernel)!r}" for kernel, part in zip(parts.kernels, parts.names.tolist(), strict=True)]
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


def stored_errors(errors: Errors, part: str, *quantities: str) -> dict[str, dict[str, FloatArray]]:
    """Basis -> quantity -> sorted absolute log errors of a part, thinned out for storage."""
    mine = dict(errors.where(errors["what"] == part).groups("split")) if len(errors) else {}
    return {
        basis: {name: thinned(np.abs(mine[basis].log_errors(name)), _MOST_ERRORS) for name in quantities}
        for basis in BASES
        if basis in mine
    }


def coverage(errors: Errors) -> list[Coverage]:
    """For each basis and part, the share of kernels that lie within a 90 % interval made from others.

    If sizes were left out, the intervals are made from half of them, and tested on the other half. If GPUs were left
    out, the intervals of a GPU are made from the errors on the other GPUs.
    """
    found = []
    for part, of_part in sorted(errors.groups("what"), key=lambda group: group[0]):
        for basis, mine in of_part.groups("split"):
            sizes, gpus, half = np.abs(mine.log_errors("time")), mine["where"], np.full(len(mine), np.nan)
            tests = [(gpus != gpu, gpus == gpu) for gpu in dict.fromkeys(gpus.tolist())]
            for known, tested in [(mine["first"], ~mine["first"])] if basis == "measured" else tests:
                if conformal_rank(LEVEL, count := int(known.sum())) <= count:
                    half[tested] = conformal_error(np.sort(sizes[known]), LEVEL, "operations that were left out")
            judged = mine.having({width_of("time"): half}).where(~np.isnan(half))
            if len(judged):
                found.append(covered(basis, part, judged, ("time",)))
    return found
