"""How recipes of each class are trained and validated: on a GPU or CPU in a mode, or on all GPUs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import DatasetError, InputError
from ..hardware.host import is_cpu
from ..operations.operation import MODES, require_mode
from ..predictors.evaluation import any_gpu, one_gpu
from ..predictors.evaluation.errors import Validation
from ..predictors.fitting.forms import ANY_GPU_FORMS
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.recipes import Recipe
from ..predictors.regressors.fitted_trees import ONE_GPU_FORMS
from .catalogue import find_kernels
from .training import Loaded, Trained, all_networks, train, train_any_gpu, train_cpu


class Trainer(NamedTuple):
    """How recipes of a class are trained and validated.

    An empty list of modes stands for all modes. `quick` concerns predictors for any GPU only, see `validate_any_gpu`.

    Args:
        splits: What is left out in validations.
        about, file: What reports are about, and the name of their file.
    """

    train: Callable[[Sequence[Loaded], Sequence[str], Any, bool], Iterator[Trained]]
    validate: Callable[[Sequence[Loaded], Sequence[str], Any, bool], list[Validation]]
    splits: str
    about: str = "predictions"
    file: str = "REPORT.md"


def with_modes(loaded: Sequence[Loaded], asked: Sequence[str]) -> list[tuple[Loaded, str]]:
    """Datasets, each with the modes for which a predictor is trained on it.

    Raises UnknownNameError: a mode does not exist. Raises DatasetError: no dataset has a usable operation.
    """
    for mode in asked:
        require_mode(mode)
    found = [
        (each, mode) for each in loaded for mode in MODES if mode in asked or (not asked and each.dataset.usable(mode))
    ]
    if not found:
        raise DatasetError(
            "no usable operation was measured, and a GPU's own predictor is trained on operations",
            given=", ".join(f"{each.folder}, {len(each.dataset.networks)} networks" for each in loaded),
            allowed="a dataset with operations",
            hint="`joulecast datasets show FOLDER` describes a dataset; `joulecast collect` measures operations",
        )
    return found


def _train_own(loaded: Sequence[Loaded], asked: Sequence[str], recipe: Recipe, quick: bool) -> Iterator[Trained]:
    # Where no network was measured on a GPU, the scale of its intervals is taken from another GPU.
    borrowed: dict[str, NetworkCalibration] = {}
    for each, mode in sorted(with_modes(loaded, asked), key=lambda pair: not pair[0].in_mode(pair[1])):
        trained = train(each, mode, recipe, borrowed.get(mode))
        if trained.predictor.network_errors is not None:
            borrowed.setdefault(mode, trained.predictor.network_errors)
        yield trained


def _each(validate: Callable[..., Validation]) -> Callable[..., list[Validation]]:
    """A validation of each dataset and mode by itself."""
    return lambda loaded, asked, recipe, quick: [
        validate(each.dataset, mode, recipe, each.in_mode(mode)) for each, mode in with_modes(loaded, asked)
    ]


_OWN = Trainer(_train_own, _each(one_gpu.validate), one_gpu.SPLITS)
_ANY_GPU = Trainer(
    lambda loaded, asked, recipe, quick: iter([train_any_gpu(loaded, recipe, quick=quick)]),
    lambda loaded, asked, recipe, quick: [
        any_gpu.validate_any_gpu(
            [each.dataset for each in loaded], all_networks(loaded), recipe, kernels=find_kernels(), quick=quick
        )
    ],
    any_gpu.SPLITS,
    "predictions for any GPU",
)
_CPU = Trainer(
    lambda loaded, asked, recipe, quick: (train_cpu(*each, recipe) for each in with_modes(loaded, asked)),
    _each(one_gpu.validate_cpu),
    one_gpu.CPU_SPLITS,
    "predictions for CPUs",
    "CPUS.md",
)

TRAINERS: Mapping[type[Recipe], Trainer] = {
    **{form.settings: _OWN for form in ONE_GPU_FORMS.values()},
    **{form.settings: _ANY_GPU for form in ANY_GPU_FORMS.values()},
}
"""Class of recipe -> how it is trained: on one GPU's own measurements, or on those of many GPUs."""


def trainers_of(recipe: Recipe, loaded: Sequence[Loaded]) -> Iterator[tuple[Trainer, list[Loaded]]]:
    """How a recipe is trained, and the datasets for it: those of CPUs apart from those of GPUs.

    Raises InputError: a recipe for any GPU, and datasets of CPUs only.
    """
    on_cpus = [each for each in loaded if is_cpu(each.dataset.card.gpu)]
    on_gpus = [each for each in loaded if each not in on_cpus]
    trainer = TRAINERS[type(recipe)]
    if trainer is _OWN and on_cpus:
        yield _CPU, on_cpus
    elif not on_gpus:
        raise InputError(
            "a predictor for any GPU is trained on measurements of GPUs",
            given=", ".join(each.dataset.card.gpu for each in loaded),
            allowed=f"for a CPU a recipe of {', '.join(ONE_GPU_FORMS)}",
            hint="`joulecast train --dataset FOLDER --recipe forest`",
        )
    if on_gpus:
        yield trainer, on_gpus
