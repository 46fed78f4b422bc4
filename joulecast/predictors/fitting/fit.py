"""From a recipe and datasets to a predictor.

What a chip adds is fitted to its loops. A predictor for any GPU is fitted in two steps. The first, which
takes long, learns from operations. The second learns what measured networks add to that. It is quick and repeated
often, because validation leaves out one network after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...datasets import Dataset
from ...errors import DatasetError, unknown_name
from ...hardware import GPU, find_gpu
from ...operations.operation import Operation
from ..chip import ChipPart
from ..contract import Files, Networks, ResidualModel, regressor_inputs
from ..measured.rows import (
    DeviceRow,
    MeasuredLoop,
    as_arrays,
    fit_baseline,
    measured_loops,
    transferred_loops,
    with_hidden,
)
from ..model.learned import OneModel
from ..model.operations import LearnedOperations
from ..model.roofline import NoResidual
from ..model.shared import SharedByAll
from ..physics.baseline import group_of
from ..physics.fp32_kernels import counted_s
from ..physics.relative import relative_features
from ..recipes import BoostingRecipe, Recipe, RooflineRecipe, TransformerRecipe, read_recipe, recipe_of
from ..regressors.fitted_trees import ONE_GPU_FORMS, form_of
from ..transformer.attentive import Attentive

Rows = Sequence[DeviceRow]
LearnNetworks = Callable[[Networks], ResidualModel]
_Learned = TypeVar("_Learned", LearnedOperations, Attentive)


class AnyGpuForm(NamedTuple):
    """How a recipe is fitted to give a residual model, and how that model is read from an entry.

    Args:
        settings: Class of the recipe: a frozen dataclass with `folds`, `seed` and `to_dict`. Its fields are the keys of
            the TOML file.
        from_files: Function that reads what the residual model's `to_files` wrote. It raises ZooError, KeyError,
            TypeError or ValueError for anything else, and runs no code from the files.
        operations: First step: a function of datasets (for their launch times), device times and the recipe that
            returns a residual model.
        networks: Second step: a function of that residual model, the same device times, the recipe, and a model of
            kernels or None. It returns a function that adds what measured networks show, and that can be called for
            different sets of networks.
        quicker: Function that turns the recipe into one that is fitted more quickly, for a quick validation.
    """

    settings: type[Any]
    from_files: Callable[[Mapping[str, Any], Files], ResidualModel]
    operations: Callable[[Sequence[Dataset], Rows, Any], ResidualModel]
    networks: Callable[[Any, Rows, Any, OneModel | None], LearnNetworks]
    quicker: Callable[[Any], Recipe] = lambda recipe: recipe


def fit_on_all(
    datasets: Sequence[Dataset], networks: Networks, recipe: Recipe, kernels: OneModel | None = None
) -> ResidualModel:
    """Fit a recipe for any GPU on all data, beside a model of kernels where there is one.

    Raises:
        DatasetError: There are too few device times.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    rows = [row for dataset in datasets for row in with_hidden(dataset)]
    learned = fit_operations(datasets, rows, recipe)
    return network_learner(learned, rows, recipe, kernels)(networks)


def fit_operations(datasets: Sequence[Dataset], rows: Rows, recipe: Recipe) -> ResidualModel:
    """The first step: fit to these device times. The datasets are used for their launch times only."""
    return form_of(recipe, ANY_GPU_FORMS).operations(datasets, rows, recipe)


def network_learner(
    correction: ResidualModel, rows: Rows, recipe: Recipe, kernels: OneModel | None = None
) -> LearnNetworks:
    """Prepare the second step. Without networks it returns the same residual model."""
    learn = form_of(recipe, ANY_GPU_FORMS).networks(correction, rows, recipe, kernels)
    return lambda networks: learn(networks) if networks else correction


def quicker(recipe: Recipe) -> Recipe:
    """See `AnyGpuForm.quicker`."""
    return form_of(recipe, ANY_GPU_FORMS).quicker(recipe)


def read_residual_model(facts: Mapping[str, Any], files: Files) -> ResidualModel:
    """Read what the `to_files` of a residual model wrote.

    Raises:
        UnknownNameError, ZooError, KeyError, TypeError, ValueError: The facts or files are damaged or of another kind.
    """
    name = facts.get("predictor", "boosting")
    if name not in ANY_GPU_FORMS:
        raise unknown_name("predictor of a zoo entry", name, ANY_GPU_FORMS)
    return ANY_GPU_FORMS[name].from_files(facts, files)


def _transformer(datasets: Sequence[Dataset], rows: Rows, recipe: TransformerRecipe) -> Attentive:
    # Imported here, because it needs torch.
    from ..transformer.fit import fit_transformer

    return fit_transformer(datasets, rows, recipe)


def _boosted(datasets: Sequence[Dataset], rows: Rows, recipe: BoostingRecipe) -> LearnedOperations:
    # Imported here, because reading an entry needs no training.
    from ..model.fit_operations import fit_any_gpu

    return _with_networks(fit_any_gpu(datasets, rows, recipe), rows, recipe)(())


def _with_networks(
    learned: _Learned, rows: Rows, recipe: Recipe, kernels: OneModel | None = None
) -> Callable[[Networks], _Learned]:
    from ..model.fit_networks import fit_energies

    shared = SharedByAll(learned, kernels=kernels)
    return lambda networks: replace(learned, energy=fit_energies(rows, networks, shared))


ANY_GPU_FORMS: Mapping[str, AnyGpuForm] = {
    "roofline": AnyGpuForm(
        settings=RooflineRecipe,
        from_files=NoResidual.from_files,
        operations=lambda datasets, rows, recipe: NoResidual(),
        networks=lambda learned, rows, recipe, kernels: lambda networks: learned,
    ),
    "boosting": AnyGpuForm(
        settings=BoostingRecipe,
        from_files=LearnedOperations.from_files,
        operations=_boosted,
        networks=_with_networks,
    ),
    "transformer": AnyGpuForm(
        settings=TransformerRecipe,
        from_files=Attentive.from_files,
        operations=_transformer,
        networks=_with_networks,
        quicker=lambda recipe: replace(recipe, epochs=-(-recipe.epochs // 3)),
    ),
}
"""Name of a predictor in a recipe and in the zoo -> its form."""


LEAST_OPERATIONS = 20
"""Least number of unique operations to fit a predictor."""


def fit_chip(dataset: Dataset, mode: str, recipe: Recipe, *, without: Collection[Operation] = ()) -> ChipPart:
    """Fit loops of one mode that were measured at a GPU's default clock, by a recipe of ONE_GPU_FORMS.

    Some operations can be left out, with all their repeats. Raises DatasetError: there are too few usable operations of
    this mode. Raises MissingDependencyError: a library that this recipe trains with is not installed.
    """
    gpu = find_gpu(dataset.card.gpu)
    accumulates = dataset.card.accumulates_gradients
    measured = measured_loops(dataset, mode, without)
    _refuse_too_few(measured, mode, gpu)
    made: list[MeasuredLoop] = []
    if mode == "training":
        made = transferred_loops(measured, measured_loops(dataset, "inference"), gpu, accumulates, without)
    loops = measured + made
    baseline = fit_baseline(loops, gpu, accumulates)
    arrays = as_arrays(loops)
    has_power = ~np.isnan(arrays.power_w)
    operations, methods = [loop.operation for loop in loops], [loop.method for loop in loops]
    groups = [group_of(operation, gpu) for operation in operations]
    loop_s = baseline.loop_s(groups, counted_s(operations, gpu), methods)
    inputs = regressor_inputs(relative_features(operations, gpu), loop_s, baseline.host_s(groups, methods))
    form = form_of(recipe, ONE_GPU_FORMS)
    return ChipPart(
        gpu=gpu,
        mode=mode,
        baseline=baseline,
        time=form.fit(operations, inputs, np.log(arrays.time_s / loop_s), recipe, "time"),
        power=form.fit(
            [operation for operation, known in zip(operations, has_power, strict=True) if known],
            inputs[has_power],
            arrays.power_w[has_power] / gpu.power_limit_w,
            recipe,
            "power",
        ),
        measured=frozenset(loop.operation.digest for loop in measured),
        transferred=tuple(sorted({loop.operation.kind for loop in made})),
    )


def _refuse_too_few(measured: list[MeasuredLoop], mode: str, gpu: GPU) -> None:
    counts: dict[str, Any] = {
        "operations": len({loop.operation for loop in measured}),
        "power readings": sum(loop.power_w is not None for loop in measured),
    }
    for name, count in counts.items():
        if count < LEAST_OPERATIONS:
            raise DatasetError(
                f"too few usable {name} for {mode} on {gpu.name}", given=count, allowed=f"from {LEAST_OPERATIONS}"
            )


RECIPES: Mapping[str, type[Recipe]] = {
    name: form.settings for forms in (ONE_GPU_FORMS, ANY_GPU_FORMS) for name, form in forms.items()
}
"""Name of a predictor -> class of its settings."""


def predictor_of(recipe: Recipe) -> str:
    """The name of the predictor in files of this class of recipes."""
    return next(name for name, settings in RECIPES.items() if settings is type(recipe))


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe; see `read_recipe`. Its key `predictor` is a name in RECIPES."""
    return read_recipe(path, _recipe)


def _recipe(values: dict[str, Any]) -> Recipe:
    name = values.pop("predictor", None)
    if name not in RECIPES:
        raise unknown_name("predictor of a recipe", name, RECIPES)
    return recipe_of(RECIPES[name], values, f"{name} recipe")
