"""Fitting a predictor for any GPU with any recipe.

There are two steps. The first, which takes long, learns from operations. The second learns what measured networks add
to that. It is quick and repeated often, because validation leaves out one network after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...datasets import Dataset
from ...errors import unknown_name
from ...hardware import GPU
from ..any_gpu.boosted_residual import BoostedResidual
from ..any_gpu.boosting import fit_any_gpu
from ..any_gpu.network_fits import learn_from_networks
from ..any_gpu.predictor import AnyGpuPredictor
from ..any_gpu.roofline import NoResidual
from ..contract import Files, Networks, ResidualModel
from ..measured.device_rows import DeviceRow, device_rows
from ..recipes.boosting import BoostingRecipe
from ..recipes.roofline import RooflineRecipe
from ..recipes.settings import Recipe
from ..recipes.transformer import TransformerRecipe
from ..transformer.attentive import Attentive
from ..transformer.networks import read_networks

Rows = Sequence[DeviceRow]
LearnNetworks = Callable[[Networks], ResidualModel]


class AnyGpuForm(NamedTuple):
    """How a recipe is fitted to give a residual model, and how that model is read from an entry.

    Args:
        settings: Class of the recipe: a frozen dataclass with `folds`, `seed` and `to_dict`. Its fields are the keys of
            the TOML file.
        from_files: Function that reads what the residual model's `to_files` wrote. It raises ZooError, KeyError,
            TypeError or ValueError for anything else, and runs no code from the files.
        operations: First step: a function of datasets (for their launch times), device times and the recipe that
            returns a residual model.
        networks: Second step: a function of that residual model and the same device times. It returns a function that
            adds what measured networks show, and that can be called for different sets of networks.
        quicker: Function that turns the recipe into one that is fitted more quickly, for a quick validation.
    """

    settings: type[Any]
    from_files: Callable[[Mapping[str, Any], Files], ResidualModel]
    operations: Callable[[Sequence[Dataset], Rows, Any], ResidualModel]
    networks: Callable[[Any, Rows, Any], LearnNetworks]
    quicker: Callable[[Any], Recipe] = lambda recipe: recipe


@dataclass(frozen=True)
class FittedAnyGpu:
    """A residual model that was fitted, for use on any GPU."""

    correction: ResidualModel

    def on(self, gpu: GPU, mode: str) -> AnyGpuPredictor:
        """The predictor of a GPU and mode, see `Fitted.on`. Every GPU is allowed."""
        return AnyGpuPredictor(gpu, mode, self.correction)


def fit_on_all(datasets: Sequence[Dataset], networks: Networks, recipe: Recipe) -> FittedAnyGpu:
    """Fit a recipe on all data.

    Raises:
        DatasetError: There are too few device times.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    rows = [row for dataset in datasets for row in device_rows(dataset)]
    learned = fit_operations(datasets, rows, recipe)
    return FittedAnyGpu(network_learner(learned, rows, recipe)(networks))


def fit_operations(datasets: Sequence[Dataset], rows: Rows, recipe: Recipe) -> ResidualModel:
    """The first step: fit to these device times. The datasets are used for their launch times only."""
    return _form_of(recipe).operations(datasets, rows, recipe)


def network_learner(correction: ResidualModel, rows: Rows, recipe: Recipe) -> LearnNetworks:
    """Prepare the second step. Without networks it returns the same residual model."""
    learn = _form_of(recipe).networks(correction, rows, recipe)
    return lambda networks: learn(networks) if networks else correction


def quicker(recipe: Recipe) -> Recipe:
    """See `AnyGpuForm.quicker`."""
    return _form_of(recipe).quicker(recipe)


def read_residual_model(facts: Mapping[str, Any], files: Files) -> ResidualModel:
    """Read what the `to_files` of a residual model wrote.

    Raises:
        UnknownNameError, ZooError, KeyError, TypeError, ValueError: The facts or files are damaged or of another kind.
    """
    name = facts.get("predictor", "boosting")
    if name not in ANY_GPU_FORMS:
        raise unknown_name("predictor of a zoo entry", name, ANY_GPU_FORMS)
    return ANY_GPU_FORMS[name].from_files(facts, files)


def _form_of(recipe: Recipe) -> AnyGpuForm:
    return next(form for form in ANY_GPU_FORMS.values() if form.settings is type(recipe))


def _trees(datasets: Sequence[Dataset], rows: Rows, recipe: BoostingRecipe) -> BoostedResidual:
    return fit_any_gpu(datasets, (), recipe, rows)


def _energies(learned: BoostedResidual, rows: Rows, recipe: BoostingRecipe) -> LearnNetworks:
    return lambda networks: learn_from_networks(learned, rows, networks)


def _nothing(datasets: Sequence[Dataset], rows: Rows, recipe: RooflineRecipe) -> NoResidual:
    return NoResidual()


def _nothing_more(correction: NoResidual, rows: Rows, recipe: RooflineRecipe) -> LearnNetworks:
    return lambda networks: correction


def _transformer(datasets: Sequence[Dataset], rows: Rows, recipe: TransformerRecipe) -> Attentive:
    # Imported here, because it needs torch.
    from ..transformer.fit import fit_transformer

    return fit_transformer(datasets, rows, recipe)


def _fewer_passes(recipe: TransformerRecipe) -> TransformerRecipe:
    return replace(recipe, epochs=-(-recipe.epochs // 3))


ANY_GPU_FORMS: Mapping[str, AnyGpuForm] = {
    "roofline": AnyGpuForm(RooflineRecipe, NoResidual.from_files, _nothing, _nothing_more),
    "boosting": AnyGpuForm(BoostingRecipe, BoostedResidual.from_files, _trees, _energies),
    "transformer": AnyGpuForm(TransformerRecipe, Attentive.from_files, _transformer, read_networks, _fewer_passes),
}
"""Name of a predictor in a recipe and in the zoo -> its form."""
