"""How `joulecast train` and `joulecast evaluate` handle each class of recipes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..datasets import Dataset, NetworkMeasurement
from ..errors import DatasetError, InputError
from ..extraction import network_of
from ..hardware import find_gpu
from ..hardware.host import is_cpu
from ..operations.network import Network
from ..operations.operation import MODES, require_mode
from ..predictors.contract import Networks
from ..predictors.evaluation.any_gpu import SPLITS as ANY_GPU_SPLITS
from ..predictors.evaluation.any_gpu import validate_any_gpu
from ..predictors.evaluation.errors import Validation
from ..predictors.evaluation.one_gpu import CPU_SPLITS, SPLITS, Trial, search, validate, validate_cpu
from ..predictors.fitting.fit import ANY_GPU_FORMS, predictor_of
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.recipes import Recipe, XGBoostRecipe
from ..predictors.regressors.fitted_trees import ONE_GPU_FORMS
from ..zoo.catalogue import find_kernels
from ..zoo.rendering import report
from ..zoo.tracking import tuning
from ..zoo.training import Trained, train, train_any_gpu, train_cpu

Tracking = tuple[str | None, str]
"""MLflow server or store (None for the default), and the command line that was run."""


@dataclass(frozen=True)
class Loaded:
    """A dataset, the folder that it was loaded from, and the operations of its networks."""

    folder: Path
    dataset: Dataset
    networks: Mapping[NetworkMeasurement, Network]

    @classmethod
    def of(cls, folder: Path, dataset: Dataset) -> Loaded:
        """A dataset with the operations of its networks, which are extracted where the dataset does not list them."""
        networks = {
            m: m.operations or network_of(m.network, m.input_shape, mode=m.mode, precision=m.precision)
            for mode in MODES
            for m in dataset.usable_networks(mode)
        }
        return cls(folder, dataset, networks)


Entry = Trained[Any]
"""The result of a training."""


class RecipeHandler(NamedTuple):
    """How recipes of a class are handled.

    An empty list of modes stands for all modes. `quick` concerns predictors for any GPU only, see `validate_any_gpu`.

    Args:
        splits: What is left out in validations.
        about, file: What reports are about, and the name of their file.
    """

    train: Callable[[Sequence[Loaded], Sequence[str], Any, bool], Iterator[Entry]]
    validate: Callable[[Sequence[Loaded], Sequence[str], Any, bool], list[Validation]]
    splits: str
    about: str = "predictions"
    file: str = "REPORT.md"

    def report(
        self, validations: Iterable[Validation], recipe: Recipe, folder: Path, command: str, remarks: str
    ) -> Path:
        """Write a report of validations into a folder, and return its file."""
        folder.mkdir(parents=True, exist_ok=True)
        title = f"How good the {self.about} are"
        text = report(title, self.splits, recipe, validations, command=command, remarks=remarks)
        (folder / self.file).write_text(text, encoding="utf-8")
        return folder / self.file


def _own(loaded: Sequence[Loaded], asked: Sequence[str]) -> list[tuple[Loaded, str]]:
    """Datasets, each with the modes for which a predictor is trained on it.

    Raises UnknownNameError: a mode does not exist. Raises DatasetError: no dataset has a usable operation.
    """
    for mode in asked:
        require_mode(mode)
    with_modes = [
        (each, mode) for each in loaded for mode in MODES if mode in asked or (not asked and each.dataset.usable(mode))
    ]
    if not with_modes:
        raise DatasetError(
            "no usable operation was measured, and a GPU's own predictor is trained on operations",
            given=", ".join(f"{each.folder}, {len(each.dataset.networks)} networks" for each in loaded),
            allowed="a dataset with operations",
            hint="`joulecast datasets show FOLDER` describes a dataset; `joulecast collect` measures operations",
        )
    return with_modes


def _of_mode(loaded: Loaded, mode: str) -> dict[NetworkMeasurement, Network]:
    return {m: network for m, network in loaded.networks.items() if m.mode == mode}


def _train_own(loaded: Sequence[Loaded], asked: Sequence[str], recipe: Recipe, quick: bool) -> Iterator[Entry]:
    # Where no network was measured on a GPU, the scale of its intervals is taken from another GPU.
    borrowed: dict[str, NetworkCalibration] = {}
    for each, mode in sorted(_own(loaded, asked), key=lambda pair: not _of_mode(*pair)):
        trained = train(each.dataset, each.folder, mode, recipe, _of_mode(each, mode), borrowed.get(mode))
        if trained.network_errors is not None:
            borrowed.setdefault(mode, trained.network_errors)
        yield trained


def tune(
    loaded: Sequence[Loaded], asked: Sequence[str], recipe: Recipe, trials: int, tracking: Tracking | None
) -> Iterator[tuple[Loaded, str, Trial]]:
    """Search for better settings for each dataset and mode, and return the best trial of each.

    Raises InputError: the recipe has no search space. Raises TrackingError: the trials could not be logged.
    """
    if not isinstance(recipe, XGBoostRecipe) or not recipe.search:
        raise InputError(
            "this recipe has no search space",
            given=predictor_of(recipe),
            allowed="a recipe with [search]",
            hint="see predictors/xgboost.toml",
        )
    for each, mode in _own(loaded, asked):
        found: list[Trial] = []
        gpu = each.dataset.card.gpu
        tags = {"gpu": gpu, "mode": mode, "predictor": predictor_of(recipe)}
        with contextlib.ExitStack() as stack:
            log = None
            if tracking is not None:
                uri, command = tracking
                log = stack.enter_context(tuning(f"tune {gpu} {mode}", tags, uri, command=command))
            for trial in search(each.dataset, mode, recipe, trials):
                found.append(trial)
                if log is not None:
                    log.trial(trial.settings, trial.metrics)
            best = min(found, key=lambda trial: trial.metrics["loss"])
            if log is not None:
                log.best(best.settings, best.metrics)
        yield each, mode, best


def all_networks(loaded: Sequence[Loaded]) -> Networks:
    """The networks of all datasets that were measured with their power."""
    return [
        (find_gpu(each.dataset.card.gpu), m, network)
        for each in loaded
        for m, network in each.networks.items()
        if m.energy_j is not None
    ]


def _each(function: Callable[..., Validation]) -> Callable[..., list[Validation]]:
    """A validation of each dataset and mode by itself."""
    return lambda loaded, asked, recipe, quick: [
        function(each.dataset, mode, recipe, _of_mode(each, mode)) for each, mode in _own(loaded, asked)
    ]


_OWN = RecipeHandler(_train_own, _each(validate), SPLITS)
_ANY_GPU = RecipeHandler(
    lambda loaded, asked, recipe, quick: iter(
        [train_any_gpu([(each.folder, each.dataset) for each in loaded], all_networks(loaded), recipe, quick=quick)]
    ),
    lambda loaded, asked, recipe, quick: [
        validate_any_gpu(
            [each.dataset for each in loaded], all_networks(loaded), recipe, kernels=find_kernels(), quick=quick
        )
    ],
    ANY_GPU_SPLITS,
    "predictions for any GPU",
)
_CPU = RecipeHandler(
    lambda loaded, asked, recipe, quick: (
        train_cpu(each.dataset, each.folder, mode, recipe, _of_mode(each, mode)) for each, mode in _own(loaded, asked)
    ),
    _each(validate_cpu),
    CPU_SPLITS,
    "predictions for CPUs",
    "CPUS.md",
)

HANDLERS: Mapping[type[Recipe], RecipeHandler] = {
    **{form.settings: _OWN for form in ONE_GPU_FORMS.values()},
    **{form.settings: _ANY_GPU for form in ANY_GPU_FORMS.values()},
}
"""Class of recipe -> how it is handled: trained on one GPU's own measurements, or on those of many GPUs."""


def handled(
    recipes: Mapping[str, Recipe], loaded: Sequence[Loaded]
) -> Iterator[tuple[str, Recipe, RecipeHandler, list[Loaded]]]:
    """Recipes by name, with how each is handled, and the datasets for it: those of CPUs apart from those of GPUs.

    Raises InputError: a recipe for any GPU, and datasets of CPUs only.
    """
    on_cpus = [each for each in loaded if is_cpu(each.dataset.card.gpu)]
    on_gpus = [each for each in loaded if each not in on_cpus]
    for name, recipe in recipes.items():
        handler = HANDLERS[type(recipe)]
        if handler is _OWN and on_cpus:
            yield name, recipe, _CPU, on_cpus
        elif not on_gpus:
            raise InputError(
                "a predictor for any GPU is trained on measurements of GPUs",
                given=", ".join(each.dataset.card.gpu for each in loaded),
                allowed=f"for a CPU a recipe of {', '.join(ONE_GPU_FORMS)}",
                hint="`joulecast train --dataset FOLDER --recipe forest`",
            )
        if on_gpus:
            yield name, recipe, handler, on_gpus
