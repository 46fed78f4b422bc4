"""What trees see of an operation on a GPU: its kernels relative to the GPU, and how physics thinks they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, summed_by
from ...operations.attributes import PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..physics.operation_numbers import numbers_of
from .machine import Machine, way
from .physics import Costs
from .work import CONVOLUTION, STREAM, Work

_PADS = (8, 16, 64, 128, 256)
_WAVE_TILES = ((64, 64), (128, 64), (128, 128), (256, 128))

OPERATION_NAMES: tuple[str, ...] = (
    "family",
    "group",
    "implementation",
    "width",
    "precision",
    "in_bytes",
    "training",
    "log_batch",
    "log_rows",
    "log_columns",
    "log_reduction",
    "part",
    "log_sharing",
    "log_span_over_reduction",
    "skew",
    "log_outputs",
    "log_rows_reduction_over_columns",
    *(f"log_row_padding_{pad}" for pad in _PADS),
    *(f"log_column_padding_{pad}" for pad in _PADS),
    "row_alignment",
    "column_alignment",
    "reduction_alignment",
    "kernel",
    "stride",
    "log_groups",
    "winograd",
    "height",
    "log_channels_in",
    "log_channels_out",
    "log_intensity",
    "log_launches",
)
"""Names of the features that do not depend on the GPU."""

GPU_NAMES: tuple[str, ...] = (
    "way",
    "log_least_cycles",
    "compute_share",
    "memory_share",
    "launch_share",
    "log_waves",
    "log_whole_waves",
    "log_fill",
    "log_splits",
    "log_moved_over_l2",
    "log_held_over_l2",
    "log_flops_cycles",
    "log_memory_cycles",
    *(f"log_waves_{tall}x{wide}" for tall, wide in _WAVE_TILES),
    *(f"log_whole_waves_{tall}x{wide}" for tall, wide in _WAVE_TILES),
)
"""Names of the features that depend on the GPU."""

MACHINE_NAMES: tuple[str, ...] = ("log_sms", "log_rate", "log_ridge", "log_l2_per_sm", "log_watts_per_rate")
"""Names of the features that describe the GPU alone."""

NAMES: tuple[str, ...] = (*OPERATION_NAMES, *GPU_NAMES, *MACHINE_NAMES)
"""Names of all features."""

_TINY = 1e-12
_FP16, _BF16 = PRECISIONS.index("fp16"), PRECISIONS.index("bf16")


def first_kernels(work: Work, count: int) -> NDArray[np.int64]:
    """Index of the first kernel of each operation, shape (operations,); operations without kernels get 0."""
    first = np.zeros(count, dtype=np.int64)
    first[work.place[::-1]] = np.arange(len(work.place))[::-1]
    return first


def features(operations: Sequence[Operation], work: Work, found: Costs, machine: Machine) -> NDArray[np.float32]:
    """The features of operations on a GPU, shape (..., operations, len(NAMES))."""
    rows = np.empty((*found.waves.shape[:-1], len(operations), len(NAMES)), np.float32)
    rows[..., : len(OPERATION_NAMES)] = OperationList.of(operations).derived(_of_operations)
    for place, values in enumerate(_on_gpu(work, found, machine, len(operations)), len(OPERATION_NAMES)):
        rows[..., place] = values
    return rows


def _of_operations(operations: OperationList) -> FloatArray:
    """Features that do not depend on the GPU, shape (operations, len(OPERATION_NAMES))."""
    n, work = numbers_of(operations), Work.of(operations)
    w = work.some(first_kernels(work, len(operations)))
    m, c, k, b = (np.maximum(column, 1.0) for column in (w.rows, w.columns, w.reduction, w.batch))
    moved = np.maximum(n.bytes_read + n.bytes_written, 1.0)
    # Tensor cores compute bf16 and fp16 alike, so measurements of both join. AMD's convolutions have kernels of each.
    alike = (w.precision == _FP16) & (w.group != CONVOLUTION)
    columns = [
        n.family,
        w.group,
        w.implementation,
        w.width,
        np.where(alike, _BF16, w.precision),
        w.in_bytes,
        n.is_training,
        np.log2(b),
        np.log2(m),
        np.log2(c),
        np.log2(k),
        w.part,
        np.log2(w.sharing),
        np.log2(w.span / k),
        w.skew,
        np.log2(b * m * c),
        np.log2(m * k / c),
        *(np.log2(np.ceil(m / pad) * pad / m) for pad in _PADS),
        *(np.log2(np.ceil(c / pad) * pad / c) for pad in _PADS),
        _alignment(m),
        _alignment(c),
        _alignment(k),
        n.kernel,
        n.stride,
        np.log2(np.maximum(n.groups, 1.0)),
        n.winograd,
        n.height,
        np.log2(np.maximum(n.channels_in, 1.0)),
        np.log2(np.maximum(n.channels_out, 1.0)),
        np.log2(np.maximum(n.flops, 1.0) / moved),
        np.log2(np.maximum(w.launches, 1.0)),
    ]
    # Of kernels that only move bytes, additions alone were measured. What is peculiar to these is hidden from trees.
    found: FloatArray = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    return np.where((w.group != STREAM)[:, None], found, 0.0)


def _alignment(sizes: FloatArray) -> FloatArray:
    """How many of 2, 4, 8, 16, 64 and 128 divide each size."""
    found: FloatArray = np.sum([sizes % each == 0 for each in (2, 4, 8, 16, 64, 128)], axis=0) * 1.0
    return found


def _on_gpu(work: Work, found: Costs, machine: Machine, count: int) -> list[Any]:
    """Features that depend on the GPU: GPU_NAMES, of shape (..., operations) each, and MACHINE_NAMES."""
    first = first_kernels(work, count)
    w, one = work.some(first), Costs(*(column[..., first] for column in found))

    def total(values: FloatArray) -> FloatArray:
        return summed_by(work.place, values, count)

    time_s = np.maximum(total(found.time_s), _TINY)
    rate = machine.flops_per_cycle[..., w.precision]
    tiles = [np.ceil(w.rows / tall) * np.ceil(w.columns / wide) * w.batch / machine.sms for tall, wide in _WAVE_TILES]
    tiles = [np.maximum(each, 1.0 / machine.sms) for each in tiles]
    moved, held = total(work.moved_bytes + work.passed_bytes), total(work.held_bytes)
    return [
        way(w, machine),
        np.log2(time_s * machine.clock_hz),
        total(found.compute_s) / time_s,
        total(found.memory_s) / time_s,
        total(found.launch_s) / time_s,
        np.log2(one.waves),
        np.log2(np.ceil(one.waves) / one.waves),
        np.log2(np.maximum(one.fill, _TINY)),
        np.log2(one.splits),
        np.log2(np.maximum(moved, 1.0) / machine.l2_bytes),
        np.log2(np.maximum(held, 1.0) / machine.l2_bytes),
        np.log2(np.maximum(total(work.flops), 1.0) / rate / machine.sms),
        np.log2(np.maximum(moved, 1.0) / machine.bandwidth * machine.clock_hz),
        *(np.log2(each) for each in tiles),
        *(np.log2(np.ceil(each) / each) for each in tiles),
        np.log2(machine.sms),
        np.log2(rate),
        np.log2(rate * machine.sms * machine.clock_hz / machine.bandwidth),
        np.log2(machine.l2_bytes / machine.sms),
        np.log2(machine.logic_power_w / (machine.sms * machine.clock_hz * rate) * 1e12),
    ]
