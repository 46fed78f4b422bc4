"""Models by name, which may belong to torchvision, to the table of transformers, or to timm."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from ...errors import InputError, JoulecastError, MissingDependencyError, unknown_name, with_extra
from . import exclusive, plain_transformers, torchvision_models, transformers_models
from .language_models import BY_NAME, EAGER_TRANSFORMERS
from .plain_transformers import PLAIN_TRANSFORMERS

_WEIGHTS = ("weights", "pretrained", "checkpoint")  # Prefixes of the names of options that would load weights.


_TIMM = "timm/"


def has_timm() -> bool:
    """Whether timm can be imported."""
    return importlib.util.find_spec("timm") is not None


def import_timm() -> ModuleType:
    """Import timm, even if torchvision's native operators cannot be loaded."""
    if not has_timm():
        raise MissingDependencyError("this model needs timm", hint=with_extra("timm"))
    torchvision_models.import_torchvision()
    return importlib.import_module("timm")


def build_timm(name: str, **options: Any) -> torch.nn.Module:
    """Build a model of `timm.list_models` on the meta device, with or without "timm/" before its name.

    Raises UnknownNameError: timm has no such model. MissingDependencyError: timm is not installed.
    """
    bare, timm = name.removeprefix(_TIMM), import_timm()
    if not timm.is_model(bare):
        raise unknown_name("model of timm", bare, timm.list_models())
    try:
        with torchvision_models.WithoutMemory(), torch.random.fork_rng(devices=[]):
            model: torch.nn.Module = timm.create_model(bare, pretrained=False, **options)
    except RuntimeError as error:  # the tag after the dot is not one of its weights
        raise unknown_name("model of timm", bare, timm.list_models(pretrained=True)) from error
    return model


def all_names() -> list[str]:
    """All names of models that can be built, without "timm/" and without tags of weights."""
    names = [*torchvision_models.all_names(), *BY_NAME, *EAGER_TRANSFORMERS, *PLAIN_TRANSFORMERS]
    return names + (list(import_timm().list_models()) if has_timm() else [])


@exclusive
def build(name: str, options: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """Build a model by name, without weights.

    If torchvision and timm have the same name, it means torchvision's model; "timm/" before the name selects timm's.
    The options are arguments of the function that builds it, or sizes of a transformer's configuration. Raises
    UnknownNameError: no library has such a model. Raises InputError: the model does not accept an option, or its value.
    """
    given = dict(options or {})
    if weights := [option for option in given if option.startswith(_WEIGHTS)]:
        raise InputError(
            "a model is built without weights",
            given=", ".join(weights),
            hint="leave them out: time and energy need none",
        )
    try:
        return _built(name, given)
    except (TypeError, ValueError, AttributeError, AssertionError) as error:
        if not given or isinstance(error, JoulecastError):
            raise
        told = ", ".join(f"{option}={value!r}" for option, value in given.items())
        raise InputError(
            f"{name} cannot be built with these options: {error}",
            given=told,
            hint="give arguments that the constructor of this model takes",
        ) from error


def _built(name: str, options: Mapping[str, Any]) -> torch.nn.Module:
    if name in PLAIN_TRANSFORMERS:
        with torch.device("meta"):
            return PLAIN_TRANSFORMERS[name](**options)
    if name in BY_NAME:
        return transformers_models.build(name, **options)
    if name in EAGER_TRANSFORMERS:
        return plain_transformers.build(name, **options)
    only_timm = importlib.util.find_spec("torchvision") is None and has_timm()
    names = [] if only_timm or name.startswith(_TIMM) else torchvision_models.all_names()
    if name in names:
        return torchvision_models.build(name, **options)
    if not names or (has_timm() and import_timm().is_model(name)):
        return build_timm(name, **options)
    hint = (
        "`joulecast models` searches, also image pipelines; or give a name of timm (joulecast[timm]), a "
        "torch.nn.Module, or a file: network, FOLDER/config.json, .pt2, .onnx"
    )
    raise unknown_name("model", name, [*names, *BY_NAME, *EAGER_TRANSFORMERS, *PLAIN_TRANSFORMERS], hint=hint)


@exclusive
def build_to_run(name: str, options: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """Build a model by name with random weights on the CPU, so that it can be run.

    It belongs to torchvision or to the table of transformers, or is a plain transformer; for the options see `build`.
    """
    given = dict(options or {})
    if name in PLAIN_TRANSFORMERS:
        return PLAIN_TRANSFORMERS[name](**given)
    if name in BY_NAME:
        return transformers_models.build_to_run(name, **given)
    return torchvision_models.build(name, weights=True, **given)
