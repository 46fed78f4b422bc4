"""Features of operations relative to the GPU that they run on, so that what is learned on one GPU holds on another.

No feature is an absolute time or rate of a GPU. Work is counted in clock cycles, sizes are counted in tiles, waves and
caches, and a GPU is described by ratios of its figures. Most features are logarithms: sizes span six decades, and
regressors that are sensitive to scale need even steps. (Trees depend on the order of values only.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation_list import OperationList
from .cached import cached
from .convolutions import CONVOLUTION_NAMES, dense_convolutions
from .fp32_kernels import tile_ratio
from .least_times import LeastTimes
from .operation_numbers import FAMILIES, KIND_PLACES, numbers_of
from .roofline import fp32_flops, on_tensor_cores
from .tiling import Tile, kernel_generation, padded, tile_count

MACHINE_NAMES: tuple[str, ...] = ("kernel_generation", "log_ridge", "log_sms", "log_watts_per_tflops")
"""The names of RELATIVE_NAMES that describe the GPU; their values are the same for all operations."""

_INDICATOR_KINDS = (
    *("linear", "matmul", "batch_norm", "layer_norm", "softmax", "relu", "gelu", "silu", "sigmoid", "tanh"),
    *("add", "mul", "div", "pow", "max_pool2d", "adaptive_avg_pool2d"),
)
_TILE = Tile(64, 64)  # Output of one thread block, typical of cuBLAS and cuDNN, which use 32 to 256 rows and columns.
_FILLED_TILES, _WAVE_TILES = (32, 128), (64, 128)
_LEAST = 1e-12

RELATIVE_NAMES: tuple[str, ...] = (
    *("log_intensity", "kernel", "stride", "log_groups", "channels_per_group", "bias"),
    *("log_rows", "log_columns", "log_reduction", "tile_fill", "log_waves", "log_cache_fill"),
    *("last_size_alignment", "channel_alignment", "tensor_cores"),
    *(f"family_{family}" for family in FAMILIES),
    *(f"kind_{kind}" for kind in _INDICATOR_KINDS),
    *(f"log_{side}_fill_{tile}" for tile in _FILLED_TILES for side in ("row", "column")),
    *(f"log_last_wave_{tile}" for tile in _WAVE_TILES),
    *CONVOLUTION_NAMES,
    *("log_compute_over_memory", "log_cycles", "log_library_tiles"),
    *MACHINE_NAMES,
    *("half_precision", "training"),
)
"""Names of the columns of `relative_features`. A stored predictor lists the names that it was trained with."""

_PLACES = {name: place for place, name in enumerate(RELATIVE_NAMES)}


@cached
def relative_features(operations: OperationList, gpu: GPU) -> FloatArray:
    """Features of operations on a GPU at its default clock, at which operations are measured.

    A ratio of measured to least time that is learned at the default clock is taken to hold at other clocks, where only
    the least time changes. The clock is not a feature, because predictions would jump at the split points of trees.

    Returns:
        A read-only matrix of shape (operations, len(RELATIVE_NAMES)); of several GPUs (gpus, operations, ...).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    clock_mhz, peak = gpu.boost_clock_mhz, fp32_flops(gpu)
    n, least = numbers_of(operations), LeastTimes.of(operations, gpu)
    of_dense = operations.derived(dense_convolutions).features(gpu)
    columns: dict[str, FloatArray | float] = {
        "log_waves": _log(tile_count(n.rows, n.columns, _TILE, n.batch) / gpu.sms),
        "log_cache_fill": _log(n.element_bytes * (n.input_size + n.output_size + n.parameters) / gpu.l2_bytes),
        "tensor_cores": on_tensor_cores(n, gpu),
        **{f"log_last_wave_{tile}": _last_wave(n, gpu, tile) for tile in _WAVE_TILES},
        **dict(zip(CONVOLUTION_NAMES, of_dense, strict=True)),
        "log_compute_over_memory": np.log((least.compute_s + _LEAST) / (least.memory_s + _LEAST)),
        "log_cycles": np.log(least.time_s * clock_mhz * 1e6),
        "log_library_tiles": np.log(tile_ratio(n, gpu)),
        # A tree splits halfway between two values of its training data. The feature counts whole generations of
        # kernels, so that a GPU left out of training falls on the side of those that run the same kernels: the V100 on
        # that of the T4, not of Pascal, and the H100 on that of Ampere.
        "kernel_generation": kernel_generation(gpu),
        "log_ridge": np.log(peak / gpu.memory_bandwidth),
        "log_sms": np.log(gpu.sms),
        "log_watts_per_tflops": np.log(gpu.power_limit_w / (peak / 1e12)),
    }
    same = operations.derived(same_everywhere)
    return _filled(np.broadcast_to(same, (*least.time_s.shape, same.shape[1])).copy(), columns)


def same_everywhere(operations: OperationList) -> FloatArray:
    """The feature matrix with the columns that are the same on all GPUs; all other columns are zero. Read-only."""
    n = numbers_of(operations)
    product = n.is_product > 0
    covered = padded(n.rows, _TILE.rows) * padded(n.columns, _TILE.columns)
    columns: dict[str, FloatArray | float] = {
        "log_intensity": _log(n.flops + 1) - _log(n.bytes_read + n.bytes_written + 1),
        "kernel": n.kernel,
        "stride": n.stride,
        "log_groups": _log(n.groups),
        "channels_per_group": n.channels_in // n.groups,
        "bias": n.bias,
        "log_rows": _log(n.rows),
        "log_columns": _log(n.columns),
        "log_reduction": _log(n.reduction),
        "tile_fill": np.where(product, n.rows * n.columns / covered, 1.0),
        "last_size_alignment": (n.last_size % 4 == 0) * 1.0 + (n.last_size % 8 == 0),
        "channel_alignment": (n.channels_in % 8 == 0) * 1.0 + (n.channels_out % 8 == 0),
        **{f"family_{family}": n.family == place for place, family in enumerate(FAMILIES)},
        **{f"kind_{kind}": n.kind == KIND_PLACES[kind] for kind in _INDICATOR_KINDS},
        **{
            f"log_{name}_fill_{tile}": np.where(product, np.log(side / padded(side, tile)), 0.0)
            for tile in _FILLED_TILES
            for name, side in (("row", n.rows), ("column", n.columns))
        },
        "half_precision": n.element_bytes == ELEMENT_BYTES["fp16"],
        "training": n.is_training,
    }
    return _filled(np.zeros((len(operations), len(RELATIVE_NAMES))), columns)


def _filled(matrix: FloatArray, columns: dict[str, FloatArray | float]) -> FloatArray:
    for name, values in columns.items():
        matrix[..., _PLACES[name]] = values
    matrix.flags.writeable = False
    return matrix


def _log(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(values, _LEAST))
    return logs


def _last_wave(n: Any, gpu: GPU, tile: int) -> FloatArray:
    """The log of whole waves over exact waves of products in square tiles, shape (operations,)."""
    waves = tile_count(n.rows, n.columns, Tile(tile, tile), n.batch) / gpu.sms
    found: FloatArray = np.where(n.is_product > 0, np.log(np.ceil(waves) / waves), 0.0)
    return found
