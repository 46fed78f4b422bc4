"""Features of operations relative to the GPU that they run on, so that what is learned on one GPU holds on another.

No feature is an absolute time or rate of a GPU. Work is counted in clock cycles, sizes are counted in tiles, waves and
caches, and a GPU is described by ratios of its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .cached import cached
from .convolutions import CONVOLUTION_NAMES
from .features import FEATURE_NAMES, convolution_features, gpu_features, size_features
from .fp32_products import kernel_generation, tile_ratio
from .least_times import LeastTimes
from .operation_numbers import KIND_PLACES, by_batched_kernels, numbers_of
from .tiling import Tile, padded, tile_count

MACHINE_NAMES: tuple[str, ...] = ("kernel_generation", "log_ridge", "log_sms", "log_watts_per_tflops")
"""The names of RELATIVE_NAMES that describe the GPU; their values are the same for all operations."""

_INDICATOR_KINDS = (
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
_FILLED_TILES, _WAVE_TILES = (32, 128), (64, 128)
_LEAST_S = 1e-12

RELATIVE_NAMES: tuple[str, ...] = (
    *FEATURE_NAMES,
    *(f"kind_{kind}" for kind in _INDICATOR_KINDS),
    *(f"log_{side}_fill_{tile}" for tile in _FILLED_TILES for side in ("row", "column")),
    *(f"log_last_wave_{tile}" for tile in _WAVE_TILES),
    *CONVOLUTION_NAMES,
    "log_compute_over_memory",
    "log_cycles",
    "log_library_tiles",
    *MACHINE_NAMES,
    "half_precision",
    "training",
)
"""Names of the columns of `relative_features`. A stored predictor lists the names that it was trained with."""

_PLACES = {name: place for place, name in enumerate(RELATIVE_NAMES)}


def relative_features(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Features of operations on a GPU at its default clock, at which operations are measured.

    A ratio of measured to least time that is learned at the default clock is taken to hold at other clocks, where only
    the least time changes. The clock is not a feature, because predictions would jump at the split points of trees.

    Returns:
        A read-only matrix of shape (operations, len(RELATIVE_NAMES)).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return _relative_features(OperationList.of(operations), gpu)


@cached
def _relative_features(listed: OperationList, gpu: GPU) -> FloatArray:
    clock_mhz = float(gpu.boost_clock_mhz)
    n, least = numbers_of(listed), LeastTimes.of(listed, gpu, clock_mhz)
    peak = gpu.peak_flops["fp32"]
    matrix = listed.derived(same_everywhere).copy()
    columns: dict[str, FloatArray | float] = {
        **gpu_features(listed, gpu),
        **dict(_last_waves(n, gpu)),
        **convolution_features(listed, gpu),
        "log_compute_over_memory": np.log((least.compute_s + _LEAST_S) / (least.memory_s + _LEAST_S)),
        "log_cycles": np.log(least.time_s * clock_mhz * 1e6),
        "log_library_tiles": np.where(by_batched_kernels(n), np.log(tile_ratio(n, gpu)), 0.0),
        # A tree splits halfway between two values of its training data. The feature counts whole generations of
        # kernels, so that a GPU left out of training falls on the side of those that run the same kernels: the V100 on
        # that of the T4, not of Pascal, and the H100 on that of Ampere.
        "kernel_generation": float(kernel_generation(gpu)),
        "log_ridge": np.log(peak / gpu.memory_bandwidth),
        "log_sms": np.log(gpu.sms),
        "log_watts_per_tflops": np.log(gpu.power_limit_w / (peak / 1e12)),
    }
    for name, values in columns.items():
        matrix[:, _PLACES[name]] = values
    matrix.flags.writeable = False
    return matrix


def same_everywhere(operations: OperationList) -> FloatArray:
    """The feature matrix with the columns that are the same on all GPUs; all other columns are zero."""
    n = numbers_of(operations)
    product = n.is_product > 0
    matrix = np.zeros((len(operations), len(RELATIVE_NAMES)))
    matrix[:, : len(FEATURE_NAMES)] = operations.derived(size_features)
    for kind in _INDICATOR_KINDS:
        matrix[:, _PLACES[f"kind_{kind}"]] = n.kind == KIND_PLACES[kind]
    for tile in _FILLED_TILES:
        for name, side in (("row", n.rows), ("column", n.columns)):
            fill = np.log(side / padded(side, tile))
            matrix[:, _PLACES[f"log_{name}_fill_{tile}"]] = np.where(product, fill, 0.0)
    matrix[:, _PLACES["half_precision"]] = n.element_bytes == ELEMENT_BYTES["fp16"]
    matrix[:, _PLACES["training"]] = n.is_training
    matrix.flags.writeable = False
    return matrix


def _last_waves(n: Any, gpu: GPU) -> Iterator[tuple[str, FloatArray]]:
    """Names and values of features: the log of whole waves over exact waves of products, for each size of tiles."""
    product = n.is_product > 0
    for tile in _WAVE_TILES:
        waves = tile_count(n.rows, n.columns, Tile(tile, tile), n.batch) / gpu.sms
        yield f"log_last_wave_{tile}", np.where(product, np.log(np.ceil(waves) / waves), 0.0)
