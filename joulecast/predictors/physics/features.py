"""Features of operations on a GPU: the one function that training and prediction share.

Most features are logarithms: times span six decades, and regressors that are sensitive to scale need even steps. (Trees
depend on the order of values only.) The first features are the roofline, the least time that the GPU needs at the
given clock by its data sheet. A predictor learns how much slower than that real operations are (see baseline.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .convolutions import CONVOLUTION_NAMES, Convolutions
from .operation_numbers import FAMILIES, KIND_PLACES, numbers_of
from .roofline import LEAST_TIME_S, Roofline, on_tensor_cores, peak_flops, tiled_roofline
from .tiling import Tile, padded, tile_count
from .whole_waves import TILE_NAMES, tile_features

# Kinds with an indicator feature of their own. Other kinds are distinguished by their family and sizes. A stored
# predictor lists its features, so all predictors of the zoo must be trained again when a kind is added here.
_INDICATOR_KINDS: tuple[str, ...] = (
    "batch_norm",
    "layer_norm",
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "stochastic_depth",
    "max_pool2d",
    "adaptive_avg_pool2d",
)

FEATURE_NAMES: tuple[str, ...] = (
    "log_roofline",
    "log_compute_time",
    "log_memory_time",
    "log_intensity",
    "log_flops",
    "log_bytes_read",
    "log_bytes_written",
    "log_input_size",
    "log_output_size",
    "log_parameters",
    "log_batch",
    "log_channels_in",
    "log_channels_out",
    "log_positions",
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
    "identity",
    "clock_ratio",
    *TILE_NAMES,
    *(f"family_{family}" for family in FAMILIES),
    *(f"kind_{kind}" for kind in _INDICATOR_KINDS),
)

FEATURE_PLACES = {name: place for place, name in enumerate(FEATURE_NAMES)}
"""Feature -> its column."""


_TILE = Tile(64, 64)  # Output of one thread block, typical of cuBLAS and cuDNN, which use 32 to 256 rows and columns.


def dense_convolutions(operations: OperationList) -> Convolutions:
    """The convolutions of a list that are not grouped; use with `OperationList.derived`."""
    return Convolutions.of(numbers_of(operations))


def convolution_features(operations: OperationList, gpu: GPU) -> dict[str, FloatArray]:
    """Features of the algorithms that can compute convolutions; they do not depend on the clock.

    They are 0 for operations other than dense convolutions.

    Returns:
        Name of CONVOLUTION_NAMES -> values, shape (operations,).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    dense = operations.derived(dense_convolutions)
    seen = dense.features(gpu, peak_flops(dense.precision, gpu), on_tensor_cores(dense, gpu))
    return dict(zip(CONVOLUTION_NAMES, seen, strict=True))


def _log(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(values, 1e-12))
    return logs


def features(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> tuple[FloatArray, Roofline]:
    """Features of operations on a GPU at a clock.

    Returns:
        A matrix of shape (operations, len(FEATURE_NAMES)), and the roofline that it contains.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    listed = OperationList.of(operations)
    n = numbers_of(listed)
    line = tiled_roofline(listed, gpu, clock_mhz)
    matrix = listed.derived(size_features).copy()
    columns: dict[str, FloatArray | float] = {
        "log_roofline": _log(np.maximum(line.time_s, LEAST_TIME_S)),
        "log_compute_time": _log(line.compute_s),
        "log_memory_time": _log(line.memory_s),
        **gpu_features(listed, gpu),
        "clock_ratio": clock_mhz / gpu.boost_clock_mhz,
        **dict(zip(TILE_NAMES, tile_features(n, gpu, on_tensor_cores(n, gpu)), strict=True)),
    }
    for name, values in columns.items():
        matrix[:, FEATURE_PLACES[name]] = values
    return matrix, line


def gpu_features(operations: OperationList, gpu: GPU) -> dict[str, FloatArray]:
    """Features that relate the sizes of operations to a GPU; they do not depend on the clock.

    Returns:
        Name of the feature -> values, shape (operations,).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    blocks, touched = operations.derived(_filling)
    return {
        "log_waves": _log(blocks / gpu.sms),
        "log_cache_fill": _log(touched / gpu.l2_bytes),
        "tensor_cores": on_tensor_cores(numbers_of(operations), gpu),
    }


def _filling(operations: OperationList) -> tuple[FloatArray, FloatArray]:
    """Number of blocks of the output, and bytes of inputs, outputs and parameters together, each (operations,)."""
    n = numbers_of(operations)
    blocks = tile_count(n.rows, n.columns, _TILE, n.batch)
    return blocks, n.element_bytes * (n.input_size + n.output_size + n.parameters)


def size_features(operations: OperationList) -> FloatArray:
    """The feature matrix with the columns that are the same on all GPUs; all other columns are zero. Read-only."""
    n = numbers_of(operations)
    product = n.is_product > 0
    covered = padded(n.rows, _TILE.rows) * padded(n.columns, _TILE.columns)
    columns = {
        "log_intensity": _log(n.flops + 1) - _log(n.bytes_read + n.bytes_written + 1),
        "log_flops": _log(n.flops + 1),
        "log_bytes_read": _log(n.bytes_read + 1),
        "log_bytes_written": _log(n.bytes_written + 1),
        "log_input_size": _log(n.input_size),
        "log_output_size": _log(n.output_size),
        "log_parameters": _log(n.parameters + 1),
        "log_batch": _log(n.first_size),
        "log_channels_in": _log(n.channels_in),
        "log_channels_out": _log(n.channels_out),
        "log_positions": _log(n.positions),
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
        "identity": n.is_identity,
        **{f"family_{family}": n.family == place for place, family in enumerate(FAMILIES)},
        **{f"kind_{kind}": n.kind == KIND_PLACES[kind] for kind in _INDICATOR_KINDS},
    }
    matrix = np.zeros((len(operations), len(FEATURE_NAMES)))
    for name, values in columns.items():
        matrix[:, FEATURE_PLACES[name]] = values
    matrix.flags.writeable = False
    return matrix
