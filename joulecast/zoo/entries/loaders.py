"""Which function reads an entry, by the predictor that its manifest names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from ...predictors.cpu.network import CpuNetworkPredictor
from ...predictors.fitting.any_gpu import ANY_GPU_FORMS
from ...predictors.networks.network_predictor import NetworkPredictor
from ...predictors.regressors.forms import ONE_GPU_FORMS
from .any_gpu_entry import AnyGpuEntry, load_any_gpu
from .cpu_entry import PREDICTOR as CPU
from .cpu_entry import load_cpu_entry
from .entry import load_entry
from .kernels_entry import PREDICTOR as KERNELS
from .kernels_entry import KernelsEntry, checked_kernels

Loaded: TypeAlias = NetworkPredictor | AnyGpuEntry | KernelsEntry | CpuNetworkPredictor
"""What an entry becomes when it is loaded."""

LOADERS: Mapping[str, Callable[[Path], Loaded]] = {
    **dict.fromkeys(ONE_GPU_FORMS, load_entry),
    **dict.fromkeys(ANY_GPU_FORMS, load_any_gpu),
    KERNELS: checked_kernels,
    CPU: load_cpu_entry,
}
"""Predictor named in a manifest -> function that reads such an entry."""
