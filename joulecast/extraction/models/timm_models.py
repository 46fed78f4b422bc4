"""Models of the `timm` library by name, built without weights."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import torch

from ...errors import MissingDependencyError, unknown_name, with_extra
from .torchvision_models import WithoutMemory, import_torchvision

PREFIX = "timm/"


def installed() -> bool:
    """Whether timm can be imported."""
    return importlib.util.find_spec("timm") is not None


def import_timm() -> ModuleType:
    """Import timm, even if torchvision's native operators cannot be loaded."""
    if not installed():
        raise MissingDependencyError("this model needs timm", hint=with_extra("timm"))
    import_torchvision()
    return importlib.import_module("timm")


def is_known(name: str) -> bool:
    """Whether timm has an architecture of this name, with or without the tag of its weights after a dot."""
    return bool(import_timm().is_model(name))


def build(name: str, **options: Any) -> torch.nn.Module:
    """Build a model of `timm.list_models` on the meta device, with or without "timm/" before its name.

    Raises UnknownNameError: timm has no such model. MissingDependencyError: timm is not installed.
    """
    bare = name.removeprefix(PREFIX)
    if not is_known(bare):
        raise unknown_name("model of timm", bare, import_timm().list_models())
    try:
        with WithoutMemory(), torch.random.fork_rng(devices=[]):
            model: torch.nn.Module = import_timm().create_model(bare, pretrained=False, **options)
    except RuntimeError as error:  # the tag after the dot is not one of its weights
        raise unknown_name("model of timm", bare, import_timm().list_models(pretrained=True)) from error
    return model
