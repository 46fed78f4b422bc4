"""Operations as numbers: the one feature function that training and predicting share.

Most features are logarithms, because times span six decades and trees see order only. The roofline comes first:
the least time that the GPU needs at the given clock, from FLOPs, bytes and the data sheet. What a predictor learns
is by how much reality is slower than that (see baseline.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...hardware import GPU
from ...kinds import KINDS
from ...operation_list import OperationList
from ...operations import ELEMENT_BYTES, PRECISIONS, Operation
from ...rules import size
from .convolutions import CONVOLUTION_NAMES, Convolutions
from .tiles import TILE_NAMES, WINOGRAD, computed_flops, tile_features

FloatArray = NDArray[np.float64]

FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(kind.family for kind in KINDS.values()))
# Kinds that get a feature of their own; the others are told apart by family and sizes. Appending keeps
# what is in the zoo valid only if it is trained again: a stored predictor names its features.
_KINDS_APART: tuple[str, ...] = (
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
    *(f"kind_{kind}" for kind in _KINDS_APART),
)

FEATURE_PLACES = {name: place for place, name in enumerate(FEATURE_NAMES)}
"""Feature -> its column."""

PRODUCTS: tuple[str, ...] = ("convolution", "matmul", "attention")
"""Families that are computed as products, tile by tile."""

KIND_PLACES = {kind: place for place, kind in enumerate(KINDS)}
"""Kind -> how `numbers_of` calls it."""

_TILE = 64  # Rows and columns of the output per thread block; cuBLAS and cuDNN use 32 to 256.
# fp32 cuBLAS computes batched products in blocks of 128 x 128 however small the matrices are: on the A100 all but
# 0.4 % of the bmm kernels that NeuSight (Lee et al., ASPLOS 2025) recorded are named ampere_sgemm_128x128. A block
# also takes a start-up as long as some further steps of the reduction: 30 to 90 there; 32 fits swin_t, swin_b and
# swin_v2_t on the A30, so their measurements are no independent test of it.
_BATCHED_TILE = 128
_BATCHED_START_UP = 32
_WINOGRAD_FITS = (("kernel_size", 3), ("stride", 1), ("dilation", 1))
_LEAST_TIME_S = 1e-9  # So that operations without any work have a logarithm.


@dataclass(frozen=True)
class Roofline:
    """The least times that a GPU needs, in seconds, one value per operation."""

    compute_s: FloatArray
    memory_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """max(FLOPs / peak, bytes / bandwidth)."""
        return np.maximum(np.maximum(self.compute_s, self.memory_s), _LEAST_TIME_S)

    @property
    def bounds(self) -> list[Literal["compute", "memory"]]:
        """Which of the two takes longer."""
        return ["compute" if more else "memory" for more in (self.compute_s > self.memory_s).tolist()]


def roofline(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Roofline:
    """Least compute and memory time of each operation on a GPU at a clock.

    Compute scales with the graphics clock, memory does not. Small batched products count the FLOPs of the
    blocks that are computed for them, not only those that are needed.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return _roofline(numbers_of(operations), gpu, clock_mhz)


def tiled_roofline(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Roofline:
    """The roofline with products computed in whole waves of blocks (tiles.py): what predictors of one GPU start from.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return _tiled_roofline(numbers_of(operations), gpu, clock_mhz)


def _tiled_roofline(n: Any, gpu: GPU, clock_mhz: float) -> Roofline:
    return _roofline(n._replace(computed_flops=computed_flops(n, gpu, _on_tensor_cores(n, gpu))), gpu, clock_mhz)


def dense_convolutions(operations: OperationList) -> Convolutions:
    """The convolutions among operations that are not grouped; to be derived from a list once."""
    return Convolutions.among(numbers_of(operations))


def convolution_features(operations: OperationList, gpu: GPU) -> dict[str, FloatArray]:
    """Features of the ways to compute convolutions, at any clock.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    dense = operations.derived(dense_convolutions)
    return dict(zip(CONVOLUTION_NAMES, dense.features(gpu, peak_flops(dense.precision, gpu)), strict=True))


def peak_flops(precision: FloatArray, gpu: GPU) -> FloatArray:
    """FLOPs per second of the precision that each operation runs in, at the boost clock."""
    return by_precision(precision, lambda p: gpu.peak_flops[gpu.running_precision(p)])


def _on_tensor_cores(n: Any, gpu: GPU) -> Any:
    return by_precision(n.precision, lambda p: float(gpu.running_precision(p) != "fp32")) > 0


def _roofline(n: Any, gpu: GPU, clock_mhz: float) -> Roofline:
    ratio = clock_mhz / gpu.boost_clock_mhz
    compute_s = n.computed_flops / (
        by_precision(n.precision, lambda p: gpu.peak_flops[gpu.running_precision(p)]) * ratio
    )
    return Roofline(compute_s, (n.bytes_read + n.bytes_written) / gpu.memory_bandwidth)


class _Numbers(NamedTuple):
    """What an operation is on any GPU, as numbers; the last four are places in tuples of names."""

    computed_flops: float
    flops: float
    bytes_read: float
    bytes_written: float
    input_size: float
    output_size: float
    parameters: float
    first_size: float
    last_size: float
    channels_in: float
    channels_out: float
    positions: float
    kernel: float
    stride: float
    groups: float
    bias: float
    batch: float
    rows: float
    columns: float
    reduction: float
    is_product: float
    is_convolution: float
    height: float
    width: float
    transforms: float
    winograd: float
    element_bytes: float
    is_identity: float
    is_training: float
    family: float
    kind: float
    precision: float


# Thousands of candidates share most of their operations, and reading these off one takes longer than predicting it.
@lru_cache(maxsize=200_000)
def _packed(operation: Operation) -> bytes:
    """The numbers of an operation in a row: bytes are put together quicker than numbers."""
    return np.array(_numbers(operation), dtype=float).tobytes()


def _numbers(operation: Operation) -> _Numbers:
    inputs, out, attributes = operation.input_shapes[0], operation.output_shape, operation.attributes
    family, kind = operation.row.family, operation.kind
    channels_first = len(inputs) > 2 and family in ("convolution", "pooling")
    channels_first = channels_first or (len(inputs) == 4 and kind not in ("linear", "layer_norm", "gelu"))
    channels_in = inputs[1] if channels_first and len(inputs) > 1 else inputs[-1]
    batch, rows, columns, reduction = _as_product(operation)
    return _Numbers(
        computed_flops=_computed_flops(operation),
        flops=operation.flops,
        bytes_read=operation.bytes_read,
        bytes_written=operation.bytes_written,
        input_size=operation.input_size,
        output_size=size(out),
        parameters=operation.parameters,
        first_size=inputs[0],
        last_size=inputs[-1],
        channels_in=channels_in,
        channels_out=attributes.get("out_channels", attributes.get("out_features", channels_in)),
        positions=size(out[2:]),
        kernel=_mean_size(attributes.get("kernel_size", 1)),
        stride=_mean_size(attributes.get("stride", 1)),
        groups=attributes.get("groups", 1),
        bias=bool(attributes.get("bias", False)),
        batch=batch,
        rows=rows,
        columns=columns,
        reduction=reduction,
        is_product=family in PRODUCTS,
        is_convolution=family == "convolution",
        height=out[-2] if len(out) > 3 else 1.0,
        width=out[-1] if len(out) > 2 else 1.0,
        transforms=_has_transforms(operation),
        winograd=_winograd(operation),
        element_bytes=ELEMENT_BYTES[operation.precision],
        is_identity=operation.is_identity,
        is_training=operation.mode == "training",
        family=FAMILIES.index(family),
        kind=KIND_PLACES[kind],
        precision=PRECISIONS.index(operation.precision),
    )


def numbers_of(operations: Sequence[Operation]) -> Any:
    """The numbers of many operations: _Numbers whose fields are arrays, to be read only."""
    return OperationList.of(operations).derived(_numbers_of)


def _numbers_of(operations: OperationList) -> _Numbers:
    table = np.frombuffer(b"".join(map(_packed, operations))).reshape(-1, len(_Numbers._fields))
    columns = np.ascontiguousarray(table.T)
    columns.flags.writeable = False
    return _Numbers(*columns)


def by_precision(places: FloatArray, value: Callable[[str], float]) -> FloatArray:
    """A value for each operation that follows from its precision; asked for those that occur."""
    at = places.astype(int)
    values = np.full(len(PRECISIONS), np.nan)
    for place in sorted(set(at.tolist())):
        values[place] = value(PRECISIONS[place])
    chosen: FloatArray = values[at]
    return chosen


def _has_transforms(operation: Operation) -> bool:
    """Whether transforms may compute it: a square window larger than one, moved step by step."""
    if operation.kind != "conv2d" or operation.attributes["groups"] != 1:
        return False
    sides = {size for name in ("stride", "dilation") for size in _sizes(operation.attributes.get(name, 1))}
    window = _sizes(operation.attributes["kernel_size"])
    return sides == {1} and len(set(window)) == 1 and window[0] > 1


def _winograd(operation: Operation) -> float:
    """How many times fewer multiplications Winograd's algorithm needs, or 1 where it does not apply.

    F(2 x 2, 3 x 3) computes squares of 2 x 2 outputs with 16 multiplications instead of 36 (Lavin and Gray, CVPR 2016).
    """
    attributes = operation.attributes
    fits = operation.kind == "conv2d" and attributes["groups"] == 1
    if not fits or any(attributes.get(name, 1) not in (value, (value, value)) for name, value in _WINOGRAD_FITS):
        return 1.0
    squares = math.prod(-(-n // 2) for n in operation.output_shape[2:])
    return max(1.0, WINOGRAD * size(operation.output_shape[2:]) / (4 * squares))


def _computed_flops(operation: Operation) -> float:
    if operation.kind not in ("matmul", "attention"):
        return operation.flops
    _, rows, columns, reduction = _as_product(operation)
    if operation.kind == "attention":
        columns = operation.input_shapes[1][-2]
    filled = rows * columns * reduction
    computed = _up_to(rows, _BATCHED_TILE) * _up_to(columns, _BATCHED_TILE) * (reduction + _BATCHED_START_UP)
    return operation.flops * computed / filled


def _up_to(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _as_product(operation: Operation) -> tuple[int, int, int, int]:
    """The operation as a batched matrix product: batch, rows, columns, reduction."""
    out = operation.output_shape
    if operation.row.family == "convolution":
        groups = operation.attributes["groups"]
        reduction = max(1, operation.forward_flops // (2 * size(out)))
        return groups, out[0] * math.prod(out[2:]), out[1] // groups, reduction
    if operation.kind in ("matmul", "attention"):
        return size(out[:-2]), out[-2], out[-1], operation.input_shapes[0][-1]
    reduction = operation.input_shapes[0][-1] if operation.kind == "linear" else 1
    return 1, size(out[:-1]), out[-1] if out else 1, reduction


def _sizes(value: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if value is None:
        return (1,)
    return (value,) if isinstance(value, int) else value


def _mean_size(value: int | tuple[int, ...] | None) -> float:
    if value is None:
        return 1.0
    return float(value) if isinstance(value, int) else math.prod(value) ** (1 / len(value))


def _log(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(values, 1e-12))
    return logs


def _up(values: FloatArray) -> FloatArray:
    """The next multiple of a tile."""
    tiles: FloatArray = np.ceil(values / _TILE)
    return tiles * _TILE


def features(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> tuple[FloatArray, Roofline]:
    """Describe operations on a GPU at a clock by numbers.

    Args:
        operations: At least one.
        gpu: Whose figures to relate sizes to.
        clock_mhz: Graphics clock.

    Returns:
        A matrix of shape (operations, len(FEATURE_NAMES)) and the roofline it contains.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    listed = OperationList.of(operations)
    n = numbers_of(listed)
    line = _tiled_roofline(n, gpu, clock_mhz)
    on_tensor_cores = _on_tensor_cores(n, gpu)
    matrix = listed.derived(size_features).copy()
    columns: dict[str, FloatArray | float] = {
        "log_roofline": _log(np.maximum(line.time_s, _LEAST_TIME_S)),
        "log_compute_time": _log(line.compute_s),
        "log_memory_time": _log(line.memory_s),
        **gpu_features(listed, gpu),
        "clock_ratio": clock_mhz / gpu.boost_clock_mhz,
        **dict(zip(TILE_NAMES, tile_features(n, gpu, on_tensor_cores), strict=True)),
    }
    for name, values in columns.items():
        matrix[:, FEATURE_PLACES[name]] = values
    return matrix, line


def gpu_features(operations: OperationList, gpu: GPU) -> dict[str, FloatArray]:
    """Features that set sizes in relation to a GPU, at any clock.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    blocks, touched = operations.derived(_filling)
    return {
        "log_waves": _log(blocks / gpu.sms),
        "log_cache_fill": _log(touched / gpu.l2_bytes),
        "tensor_cores": _on_tensor_cores(numbers_of(operations), gpu),
    }


def _filling(operations: OperationList) -> tuple[FloatArray, FloatArray]:
    """Blocks that the output is computed in, and bytes that are touched."""
    n = numbers_of(operations)
    blocks = n.batch * _up(n.rows) * _up(n.columns) / _TILE**2
    return blocks, n.element_bytes * (n.input_size + n.output_size + n.parameters)


def size_features(operations: OperationList) -> FloatArray:
    """The columns of `features` that are the same on all GPUs; zeros in the others. To be read only."""
    n = numbers_of(operations)
    product = n.is_product > 0
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
        "tile_fill": np.where(product, n.rows * n.columns / (_up(n.rows) * _up(n.columns)), 1.0),
        "last_size_alignment": (n.last_size % 4 == 0) * 1.0 + (n.last_size % 8 == 0),
        "channel_alignment": (n.channels_in % 8 == 0) * 1.0 + (n.channels_out % 8 == 0),
        "identity": n.is_identity,
        **{f"family_{family}": n.family == place for place, family in enumerate(FAMILIES)},
        **{f"kind_{kind}": n.kind == KIND_PLACES[kind] for kind in _KINDS_APART},
    }
    matrix = np.zeros((len(operations), len(FEATURE_NAMES)))
    for name, values in columns.items():
        matrix[:, FEATURE_PLACES[name]] = values
    matrix.flags.writeable = False
    return matrix
