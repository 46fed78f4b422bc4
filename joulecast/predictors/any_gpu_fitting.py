"""Fitting a predictor for any GPU, whichever recipe says how.

In two steps, because networks are few and quick to learn from, and are left out one after the other in validation:
first what operations show, which takes long, then what measured networks add to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..datasets import Dataset
from ..hardware import GPU
from .any_gpu import AnyGpuPredictor, Learned
from .any_gpu_recipes import RooflineRecipe
from .boosting import device_rows, fit_any_gpu
from .contract import Correction, Networks
from .device_row import DeviceRow
from .network_fits import learn_from_networks
from .recipe import AnyGpuRecipe, BoostingRecipe
from .roofline import Roofline

Rows = Sequence[DeviceRow]


class Steps(NamedTuple):
    """How a recipe is fitted.

    Args:
        operations: From datasets, which tell what launching takes, and device times.
        networks: What measured networks add; it takes the same device times, too.
    """

    operations: Callable[[Sequence[Dataset], Rows, Any], Correction]
    networks: Callable[[Any, Rows, Networks, Any], Correction]


@dataclass(frozen=True)
class FittedAnyGpu:
    """A correction, on any GPU."""

    correction: Correction

    def on(self, gpu: GPU, mode: str) -> AnyGpuPredictor:
        """See `Fitted.on`; there is no other GPU."""
        return AnyGpuPredictor(gpu, mode, self.correction)


def fit_on_all(datasets: Sequence[Dataset], networks: Networks, recipe: AnyGpuRecipe) -> FittedAnyGpu:
    """Fit a recipe on everything.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: A library that this recipe trains with is not installed.
    """
    rows = [row for dataset in datasets for row in device_rows(dataset)]
    return FittedAnyGpu(fit_networks(fit_operations(datasets, rows, recipe), rows, networks, recipe))


def fit_operations(datasets: Sequence[Dataset], rows: Rows, recipe: AnyGpuRecipe) -> Correction:
    """The first step; of the datasets it uses no device times but these."""
    return STEPS[type(recipe)].operations(datasets, rows, recipe)


def fit_networks(correction: Correction, rows: Rows, networks: Networks, recipe: AnyGpuRecipe) -> Correction:
    """The second step; where there are no networks, the same correction."""
    return STEPS[type(recipe)].networks(correction, rows, networks, recipe) if networks else correction


def _trees(datasets: Sequence[Dataset], rows: Rows, recipe: BoostingRecipe) -> Learned:
    return fit_any_gpu(datasets, (), recipe, rows)


def _energies(learned: Learned, rows: Rows, networks: Networks, recipe: BoostingRecipe) -> Learned:
    return learn_from_networks(learned, rows, networks)


def _nothing(datasets: Sequence[Dataset], rows: Rows, recipe: RooflineRecipe) -> Roofline:
    return Roofline()


def _nothing_more(correction: Roofline, rows: Rows, networks: Networks, recipe: RooflineRecipe) -> Roofline:
    return correction


STEPS: Mapping[type[AnyGpuRecipe], Steps] = {
    RooflineRecipe: Steps(_nothing, _nothing_more),
    BoostingRecipe: Steps(_trees, _energies),
}
"""Recipe -> how it is fitted."""
