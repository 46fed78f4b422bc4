"""Operations as numbers relative to the GPU that they run on, so that what is learned on one holds on another.

No time, size or rate stands alone here: work is counted in clock cycles, sizes in tiles, waves and caches, and the
GPU by its ratios. What shares with features.py is taken from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..hardware import GPU
from ..operations import ELEMENT_BYTES, Operation
from .features import FEATURE_NAMES, KIND_PLACES, FloatArray, features, numbers_of
from .physics import LeastTimes

_SHARED = (
    "log_intensity",
    "kernel",
    "stride",
    "log_groups",
    "channels_per_group",
    "bias",
    "log_rows",
    "log_columns",
    "log_reduction",
    "tile_fill",
    "log_waves",
    "log_cache_fill",
    "last_size_alignment",
    "channel_alignment",
    "tensor_cores",
    *(name for name in FEATURE_NAMES if name.startswith("family_")),
)
_KINDS_APART = (
    "linear",
    "matmul",
    "batch_norm",
    "layer_norm",
    "softmax",
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "add",
    "mul",
    "div",
    "pow",
    "max_pool2d",
    "adaptive_avg_pool2d",
)
_COLUMNS = [FEATURE_NAMES.index(name) for name in _SHARED]
# AMD's targets beside the NVIDIA generation of their time.
_GENERATIONS = {"gfx90a": 8.0, "gfx942": 9.0}
_LEAST_S = 1e-12

RELATIVE_NAMES: tuple[str, ...] = (
    *_SHARED,
    *(f"kind_{kind}" for kind in _KINDS_APART),
    *(f"log_{side}_fill_{tile}" for tile in (32, 128) for side in ("row", "column")),
    *(f"log_last_wave_{tile}" for tile in (64, 128)),
    "log_compute_over_memory",
    "log_cycles",
    "generation",
    "log_ridge",
    "log_sms",
    "log_watts_per_tflops",
    "half_precision",
    "training",
)
"""What `relative_features` gives, column by column; a stored predictor names them."""


def relative_features(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Describe operations on a GPU at its default clock, where operations were measured.

    What is learned of them there holds at other clocks: only the least time changes. Trees that saw the clock would
    make time and energy jump along it.

    Returns:
        A matrix of shape (operations, len(RELATIVE_NAMES)).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    clock_mhz = float(gpu.boost_clock_mhz)
    matrix, _ = features(operations, gpu, clock_mhz)
    least = LeastTimes.of(operations, gpu, clock_mhz)
    peak = gpu.peak_flops["fp32"]
    of_gpu = (
        _generation(gpu),
        np.log(peak / gpu.memory_bandwidth),
        np.log(gpu.sms),
        np.log(gpu.power_limit_w / (peak / 1e12)),
    )
    numbers = numbers_of(operations)
    rows = len(operations)
    columns = [
        matrix[:, _COLUMNS],
        np.column_stack([numbers.kind == KIND_PLACES[kind] for kind in _KINDS_APART]),
        *_fills(numbers, gpu),
        np.log((least.compute_s + _LEAST_S) / (least.memory_s + _LEAST_S)),
        np.log(least.time_s * clock_mhz * 1e6),
        np.tile(of_gpu, (rows, 1)),
        numbers.element_bytes == ELEMENT_BYTES["fp16"],
        numbers.is_training,
    ]
    stacked: FloatArray = np.column_stack(columns).astype(float)
    return stacked


def _fills(n: Any, gpu: GPU) -> Iterator[FloatArray]:
    """How well products fill tiles of some sizes, and their tiles the last wave over the multiprocessors."""
    product = n.is_product > 0
    for tile in (32, 128):
        for side in (n.rows, n.columns):
            yield np.where(product, np.log(side / (np.ceil(side / tile) * tile)), 0.0)
    for tile in (64, 128):
        waves = n.batch * np.ceil(n.rows / tile) * np.ceil(n.columns / tile) / gpu.sms
        yield np.where(product, np.log(np.ceil(waves) / waves), 0.0)


def _generation(gpu: GPU) -> float:
    try:
        return float(gpu.compute_capability)
    except ValueError:
        return _GENERATIONS.get(gpu.compute_capability, 8.0)
