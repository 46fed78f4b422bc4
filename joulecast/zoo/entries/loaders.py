"""Which function reads an entry, by the predictor that its manifest names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...predictors.fitting.any_gpu import ANY_GPU_FORMS
from ...predictors.networks.network_predictor import NetworkPredictor
from ...predictors.regressors.forms import ONE_GPU_FORMS
from .any_gpu_entry import AnyGpuEntry, load_any_gpu
from .entry import load_entry
from .kernels_entry import PREDICTOR as KERNELS
from .kernels_entry import KernelsEntry, checked_kernels

LOADERS: Mapping[str, Callable[[Path], NetworkPredictor | AnyGpuEntry | KernelsEntry]] = {
    **dict.fromkeys(ONE_GPU_FORMS, load_entry),
    **dict.fromkeys(ANY_GPU_FORMS, load_any_gpu),
    KERNELS: checked_kernels,
}
"""Predictor named in a manifest -> function that reads such an entry."""
