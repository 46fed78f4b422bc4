"""Whose model a name is: torchvision's, that of the table of transformers, or timm's."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from ...errors import unknown_name
from ..exclusive import exclusive
from . import timm_models, torchvision_models, transformers_models
from .plain_transformers import PLAIN_TRANSFORMERS
from .transformers_configs import ARCHITECTURES


@exclusive
def build(name: str) -> torch.nn.Module:
    """Build a model by name, without weights.

    Where torchvision and timm share a name, it is torchvision's; "timm/" before it asks for timm's.

    Raises:
        UnknownNameError: Nobody has such a model.
        MissingDependencyError: The library that has it is not installed.
    """
    if name in PLAIN_TRANSFORMERS:
        with torch.device("meta"):
            return PLAIN_TRANSFORMERS[name]()
    if name in ARCHITECTURES:
        return transformers_models.build(name)
    if name.startswith(timm_models.PREFIX):
        return timm_models.build(name)
    if find_spec("torchvision") is None and timm_models.installed():
        return timm_models.build(name)
    known = torchvision_models.all_names()
    if name in known:
        return torchvision_models.build(name)
    if timm_models.installed() and timm_models.is_known(name):
        return timm_models.build(name)
    hint = "or give a name of timm (joulecast[timm]), a torch.nn.Module, or a file: network, config.json, .pt2, .onnx"
    raise unknown_name("model", name, [*known, *ARCHITECTURES, *PLAIN_TRANSFORMERS], hint=hint)


@exclusive
def build_to_run(name: str) -> torch.nn.Module:
    """Build a model by name with random weights, to be measured as a whole: torchvision's, or a plain transformer.

    Raises:
        UnknownNameError: Neither is called so.
        MissingDependencyError: torchvision is not installed.
    """
    if name in PLAIN_TRANSFORMERS:
        return PLAIN_TRANSFORMERS[name]()
    return torchvision_models.build(name, weights=True)
