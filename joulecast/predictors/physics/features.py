"""Features of operations that are sizes, and those that relate sizes to a GPU; relative.py puts them together.

Most features are logarithms: sizes span six decades, and regressors that are sensitive to scale need even steps. (Trees
depend on the order of values only.)
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from .convolutions import CONVOLUTION_NAMES, Convolutions
from .operation_numbers import FAMILIES, numbers_of
from .roofline import on_tensor_cores, peak_flops
from .tiling import Tile, padded, tile_count

FEATURE_NAMES: tuple[str, ...] = (
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
    *(f"family_{family}" for family in FAMILIES),
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
    }
    matrix = np.zeros((len(operations), len(FEATURE_NAMES)))
    for name, values in columns.items():
        matrix[:, FEATURE_PLACES[name]] = values
    matrix.flags.writeable = False
    return matrix
