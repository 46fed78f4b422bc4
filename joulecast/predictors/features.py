"""Operations as numbers: the one feature function that training and predicting share.

Most features are logarithms, because times span six decades and trees see order only. The roofline comes first:
the least time that the GPU needs at the given clock, from FLOPs, bytes and the data sheet. What a predictor learns
is by how much reality is slower than that (see baseline.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..hardware import GPU
from ..kinds import KINDS
from ..operations import ELEMENT_BYTES, Operation
from ..rules import size

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
    *(f"family_{family}" for family in FAMILIES),
    *(f"kind_{kind}" for kind in _KINDS_APART),
)

_TILE = 64  # Rows and columns of the output per thread block; cuBLAS and cuDNN use 32 to 256.
# fp32 cuBLAS computes batched products in blocks of 128 x 128 however small the matrices are: on the A100 all but
# 0.4 % of the bmm kernels that NeuSight (Lee et al., ASPLOS 2025) recorded are named ampere_sgemm_128x128. A block
# also takes a start-up as long as some further steps of the reduction: 30 to 90 there; 32 fits swin_t, swin_b and
# swin_v2_t on the A30, so their measurements are no independent test of it.
_BATCHED_TILE = 128
_BATCHED_START_UP = 32
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
    ratio = clock_mhz / gpu.boost_clock_mhz
    compute = [
        _computed_flops(operation) / (gpu.peak_flops[gpu.running_precision(operation.precision)] * ratio)
        for operation in operations
    ]
    memory = [(operation.bytes_read + operation.bytes_written) / gpu.memory_bandwidth for operation in operations]
    return Roofline(np.array(compute, dtype=float), np.array(memory, dtype=float))


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


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))


def _mean_size(value: int | tuple[int, ...] | None) -> float:
    if value is None:
        return 1.0
    return float(value) if isinstance(value, int) else math.prod(value) ** (1 / len(value))


def _row(operation: Operation, gpu: GPU, compute_s: float, memory_s: float) -> list[float]:
    inputs, out, attributes = operation.input_shapes[0], operation.output_shape, operation.attributes
    channels_first = len(inputs) > 2 and operation.row.family in ("convolution", "pooling")
    channels_first = channels_first or (len(inputs) == 4 and operation.kind not in ("linear", "layer_norm", "gelu"))
    channels_in = inputs[1] if channels_first and len(inputs) > 1 else inputs[-1]
    channels_out = attributes.get("out_channels", attributes.get("out_features", channels_in))
    groups = attributes.get("groups", 1)
    batch, rows, columns, reduction = _as_product(operation)
    product = operation.row.family in ("convolution", "matmul", "attention")
    fill = rows * columns / (_up_to(rows, _TILE) * _up_to(columns, _TILE)) if product else 1.0
    blocks = batch * -(-rows // _TILE) * -(-columns // _TILE)
    touched = ELEMENT_BYTES[operation.precision] * (operation.input_size + size(out) + operation.parameters)
    moved = operation.bytes_read + operation.bytes_written
    family, kind = operation.row.family, operation.kind
    return [
        _log(max(compute_s, memory_s, _LEAST_TIME_S)),
        _log(compute_s),
        _log(memory_s),
        _log(operation.flops + 1) - _log(moved + 1),
        _log(operation.flops + 1),
        _log(operation.bytes_read + 1),
        _log(operation.bytes_written + 1),
        _log(operation.input_size),
        _log(size(out)),
        _log(operation.parameters + 1),
        _log(inputs[0]),
        _log(channels_in),
        _log(channels_out),
        _log(size(out[2:])),
        _mean_size(attributes.get("kernel_size", 1)),
        _mean_size(attributes.get("stride", 1)),
        _log(groups),
        float(channels_in // groups),
        float(bool(attributes.get("bias", False))),
        _log(rows),
        _log(columns),
        _log(reduction),
        fill,
        _log(blocks / gpu.sms),
        _log(touched / gpu.l2_bytes),
        float(inputs[-1] % 4 == 0) + float(inputs[-1] % 8 == 0),
        float(channels_in % 8 == 0) + float(channels_out % 8 == 0),
        float(gpu.running_precision(operation.precision) != "fp32"),
        float(operation.is_identity),
        0.0,
        *(float(family == name) for name in FAMILIES),
        *(float(kind == name) for name in _KINDS_APART),
    ]


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
    line = roofline(operations, gpu, clock_mhz)
    rows = [
        _row(operation, gpu, compute_s, memory_s)
        for operation, compute_s, memory_s in zip(
            operations, line.compute_s.tolist(), line.memory_s.tolist(), strict=True
        )
    ]
    matrix = np.array(rows, dtype=float)
    matrix[:, FEATURE_NAMES.index("clock_ratio")] = clock_mhz / gpu.boost_clock_mhz
    return matrix, line
