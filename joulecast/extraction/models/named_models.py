"""Whose model a name is: torchvision's, that of the table of transformers, or timm's."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch

from ...errors import InputError, JoulecastError, unknown_name
from ..exclusive import exclusive
from . import eager_transformers, timm_models, torchvision_models, transformers_models
from .eager_transformers import EAGER_TRANSFORMERS
from .plain_transformers import PLAIN_TRANSFORMERS
from .transformers_configs import ARCHITECTURES

_WEIGHTS = ("weights", "pretrained", "checkpoint")  # Beginnings of names of options that would load some.


@exclusive
def build(name: str, options: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """Build a model by name, without weights.

    Where torchvision and timm share a name, it is torchvision's; "timm/" before it asks for timm's.

    Args:
        name: Name of the model, as users write it.
        options: Arguments of the function that builds it, or sizes of a transformer's configuration, by name.

    Raises:
        UnknownNameError: Nobody has such a model.
        InputError: The model takes no such option, or not this value.
        MissingDependencyError: The library that has it is not installed.
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
        raise InputError(f"{name} cannot be built with these options: {error}", given=told) from error


def _built(name: str, options: Mapping[str, Any]) -> torch.nn.Module:
    if name in PLAIN_TRANSFORMERS:
        with torch.device("meta"):
            return PLAIN_TRANSFORMERS[name](**options)
    if name in ARCHITECTURES:
        return transformers_models.build(name, **options)
    if name in EAGER_TRANSFORMERS:
        return eager_transformers.build(name, **options)
    if name.startswith(timm_models.PREFIX):
        return timm_models.build(name, **options)
    if find_spec("torchvision") is None and timm_models.installed():
        return timm_models.build(name, **options)
    known = torchvision_models.all_names()
    if name in known:
        return torchvision_models.build(name, **options)
    if timm_models.installed() and timm_models.is_known(name):
        return timm_models.build(name, **options)
    hint = "or give a name of timm (joulecast[timm]), a torch.nn.Module, or a file: network, config.json, .pt2, .onnx"
    raise unknown_name("model", name, [*known, *ARCHITECTURES, *EAGER_TRANSFORMERS, *PLAIN_TRANSFORMERS], hint=hint)


@exclusive
def build_to_run(name: str, options: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """Build a model by name with random weights on the CPU, to be run as a whole.

    Args:
        name: A model of torchvision, of the table of transformers, or a plain transformer.
        options: Arguments of the function that builds it, or sizes of a transformer's configuration, by name.

    Raises:
        UnknownNameError: None of them is called so.
        MissingDependencyError: The library that has it is not installed.
    """
    given = dict(options or {})
    if name in PLAIN_TRANSFORMERS:
        return PLAIN_TRANSFORMERS[name](**given)
    if name in ARCHITECTURES:
        return transformers_models.build_to_run(name, **given)
    return torchvision_models.build(name, weights=True, **given)
