"""How much longer kernels take inside networks than in loops.

In a loop a kernel finds as much of its data in the L2 cache as fits there, because its own last run left it. Inside a
network other kernels ran in between. A kernel whose data fit into the cache loses most, and one that moves many times
as much loses nothing.

Measured networks in half precision show this: in batches of 8 to 32 sequences of 128 tokens, linear layers take 1.5 to
1.35 times as long as in loops on an A100 (40 MB of L2 cache), and 1.17 to 1.03 times on an A10 (6 MB); with sequences
of 512 tokens 1.13 times on an A100 (energaizer2026). What this loses is about the same on both chips.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ...operations.precisions import HALF_BYTES
from ..physics.operation_numbers import numbers_of


class NetworkFactors(NamedTuple):
    """Time inside networks over the time that is predicted for single operations, on a chip.

    Args:
        kernels: That of kernels whose data fit into the L2 cache.
        others: That of other operations in half precision, in inference. They are predicted from fp32.
    """

    kernels: float = 1.0
    others: float = 1.0


def factors_of(gpu: GPU, by_chip: Mapping[str, NetworkFactors]) -> NetworkFactors:
    """The factors of a GPU. For a chip without measured networks, that of kernels is the geometric mean over all chips.

    Args:
        gpu: The GPU.
        by_chip: Chip -> its factors.
    """
    if gpu.chip in by_chip or not by_chip:
        return by_chip.get(gpu.chip, NetworkFactors())
    return NetworkFactors(float(np.exp(np.mean(np.log([each.kernels for each in by_chip.values()])))))


def cached_share(operations: OperationList, gpu: GPU) -> FloatArray:
    """Share of the data of each operation that fits into the L2 cache, shape (operations,).

    Args:
        operations: The operations.
        gpu: The GPU that they run on.
    """
    n = numbers_of(operations)
    touched = n.element_bytes * (n.input_size + n.output_size + n.parameters)
    share: FloatArray = np.minimum(1.0, gpu.l2_bytes / np.maximum(touched, 1.0))
    return share


def others_in_half(operations: OperationList, by_kernels: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The operations that the factor of others is for, shape (operations,).

    Convolutions have a factor of their own (physics/half_precision.py). In training, where the factor was not measured,
    published steps are closer without it (benchmarks/training).

    Args:
        operations: The operations.
        by_kernels: Whether learned kernels predict each operation, shape (operations,).
    """
    n = numbers_of(operations)
    half = (n.element_bytes == HALF_BYTES) & (n.is_convolution == 0) & (n.is_training == 0)
    found: NDArray[np.bool_] = half & ~by_kernels
    return found


def slower(operations: OperationList, gpu: GPU, by_kernels: NDArray[np.bool_], factors: NetworkFactors) -> FloatArray:
    """Time of each operation inside a network over the time that is predicted for it alone, shape (operations,).

    Args:
        operations: The operations.
        gpu: The GPU that they run on.
        by_kernels: Whether learned kernels predict each operation, shape (operations,).
        factors: Factors of the GPU.
    """
    kernels = 1.0 + (factors.kernels - 1.0) * cached_share(operations, gpu)
    others = np.where(others_in_half(operations, by_kernels), factors.others, 1.0)
    found: FloatArray = np.where(by_kernels, kernels, others)
    return found
