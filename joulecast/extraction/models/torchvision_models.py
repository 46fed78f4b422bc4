"""torchvision's models by name, built without weights."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...errors import MissingDependencyError, unknown_name, with_extra
from . import exclusive

# Schemas of the operators that torchvision refers to while it is imported, and of one that detectors run
# (torchvision/csrc/ops/nms.cpp, quantized/cpu/qnms_kernel.cpp and roi_align.cpp).
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
_declared: list[torch.library.Library] = []


@exclusive
def import_torchvision() -> ModuleType:
    """Import torchvision, even if its native operators cannot be loaded.

    Its wheels for Linux are built for CUDA. With a torch for CPUs their library does not load, and the import then
    fails, because its operators are not declared. Only the architectures are needed here, so declaring the operators is
    enough. Raises MissingDependencyError: torchvision is not installed.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise MissingDependencyError("named models need torchvision", hint=with_extra("torch"))
    if not _declared and not _native_operators_load(Path(spec.origin).parent):
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for schema in _SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
        torch.library.register_fake(
            "torchvision::roi_align",
            lambda x, rois, scale, height, width, *_: x.new_empty((rois.shape[0], x.shape[1], height, width)),
            lib=library,
        )
        _declared.append(library)  # if this object is deleted, its operators are deleted as well
        torchvision = importlib.import_module("torchvision")
        # torchvision checks this before it calls an operator. Otherwise it would run it in Python, not as one kernel.
        for name in ("torchvision.extension", "torchvision.ops.roi_align"):
            importlib.import_module(name)._has_ops = lambda: True  # type: ignore[attr-defined]
        return torchvision
    return importlib.import_module("torchvision")


def _native_operators_load(folder: Path) -> bool:
    for path in [*folder.glob("_C*.so"), *folder.glob("_C*.pyd")]:
        try:
            torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
        except OSError:
            return False
        return True
    return False


_FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye}


class WithoutMemory(TorchFunctionMode):
    """Create parameters on the meta device.

    A plain `torch.device("meta")` does not work, because some models compute settings by `linspace` and `arange` while
    they are built, and need the values.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FACTORIES and kwargs.get("device") is None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def model_names() -> list[str]:
    """Names of all classification models."""
    models = import_torchvision().models
    return list(models.list_models(module=models))


def all_names() -> list[str]:
    """Names of all models: classification, segmentation, detection, video, optical flow, quantized."""
    return list(import_torchvision().models.list_models())


def build(name: str, *, weights: bool = False, **options: Any) -> torch.nn.Module:
    """Build a model by name.

    A quantized_ model is what torchvision builds where nothing is quantized yet: a float model with stubs. Its weights
    have random values, or it is on the meta device. The options are arguments of the function that builds it. Raises
    UnknownNameError: torchvision has no such model. Raises MissingDependencyError: torchvision is not installed.
    """
    models = import_torchvision().models
    names = all_names()
    if name not in names:
        raise unknown_name("model", name, names, hint="or give a torch.nn.Module, or a network saved as JSON")
    # Without this option, these two draw their weights with scipy on the CPU, and warn.
    settings: dict[str, Any] = {"init_weights": False} if name in _DRAWN_BY_SCIPY else {}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        settings["weights_backbone"] = None  # otherwise it would be downloaded
    with nullcontext() if weights else WithoutMemory(), torch.random.fork_rng(devices=[]):
        model: torch.nn.Module = models.get_model(name, weights=None, **{**settings, **options})
    return model


_DRAWN_BY_SCIPY = frozenset({"googlenet", "inception_v3", "quantized_googlenet", "quantized_inception_v3"})
