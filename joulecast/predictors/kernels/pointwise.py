"""Point-wise operations in half precision: the time to move their bytes through the memory, or through the L2 cache.

Only additions were measured. Kernels of other point-wise operations wait for the memory in the same way, so the time of
an operation depends on its bytes alone.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .family import Constant, Family, of_nvidia

_CACHE_STEEPNESS = 4  # How sharply the share of hits falls where the working set outgrows the L2.


def _variant(operation: Operation) -> str | None:
    is_one = operation.row.family == "elementwise" and not operation.is_identity
    return "half" if is_one and operation.mode == "inference" and operation.precision in HALF_PRECISIONS else None


def _bytes(operations: OperationList) -> FloatArray:
    """Bytes read and written, shape (2, operations)."""
    return np.array([(o.bytes_read, o.bytes_written) for o in operations], dtype=float).T


def _physics_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    launch, bandwidth, l2_bytes, sets = constants
    clock_hz = gpu.boost_clock_mhz * 1e6
    moved = operations.derived(_bytes).sum(axis=0)
    cached = 1 / (1 + (moved * sets / gpu.l2_bytes) ** _CACHE_STEEPNESS)
    memory_s = moved * (1 - cached) / (gpu.memory_bandwidth * bandwidth)
    found: FloatArray = launch / clock_hz + memory_s + moved * cached / (l2_bytes * gpu.sms * clock_hz)
    return found


def _features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    # Operations that do nothing, such as dropout in inference, move no bytes, and zero has no logarithm.
    read, written = np.maximum(operations.derived(_bytes), 1.0)
    moved = read + written
    logs = [moved / gpu.l2_bytes, moved / gpu.memory_bandwidth * gpu.boost_clock_mhz * 1e6, read / written]
    return np.log2(logs).T.astype(np.float32)


def _size(operation: Operation) -> Hashable:
    return operation.input_shapes


POINTWISE = Family(
    name="point-wise",
    constants=(
        Constant("launch_cycles", 4000.0, 3000.0, 6000.0),
        Constant("share_of_bandwidth", 0.85, 0.4, 1.0),
        Constant("l2_bytes_per_sm_cycle", 30.0, 8.0, 100.0),
        Constant("working_sets", 1.0, 0.5, 4.0),
    ),
    feature_names=("log_bytes_over_l2", "log_memory_cycles", "log_read_over_written"),
    variant_precisions={"half": "bf16"},
    variant=_variant,
    physics_s=_physics_s,
    features=_features,
    unseen=_size,
    covers=of_nvidia,
)
