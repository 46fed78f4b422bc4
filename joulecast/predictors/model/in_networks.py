"""How much longer operations in half precision take inside networks than in loops.

In a loop a kernel finds as much of its data in the L2 cache as fits there, because its own last run left it. Inside a
network other kernels ran in between. A kernel whose data fit into the cache loses most, and one that moves many times
as much loses nothing.

Measured networks in half precision show this: in batches of 8 to 32 sequences of 128 tokens, linear layers take 1.5 to
1.35 times as long as in loops on an A100 (40 MB of L2 cache), and 1.17 to 1.03 times on an A10 (6 MB); with sequences
of 512 tokens 1.13 times on an A100 (energaizer2026). What this loses is the same on both chips.

Softmax, norms, copies and the rest that was not measured in half precision are predicted from fp32. There the memory
decides. In half precision there is half as much to move, but as many elements to load, and a multiprocessor loads a
limited number in a cycle. So an A100 at a low clock, with much bandwidth for each multiprocessor and cycle, takes up to
twice as long as its memory, and an A10 hardly longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES
from ...operations.operation_list import OperationList
from ..physics.operation_numbers import numbers_of


class NetworkFactors(NamedTuple):
    """What operations in half precision take inside networks beyond what is predicted for them alone, on any chip.

    On several GPUs (`Boards`), factors are columns.

    Args:
        products: Time of products inside networks over that in loops, for kernels whose data fit into the L2 cache.
        cycles: Cycles of a multiprocessor for each element that other operations read or write, in inference.
        chips: The chips whose networks were measured.
    """

    products: FloatArray | float = 1.0
    cycles: FloatArray | float = 0.0
    chips: tuple[str, ...] = ()


def cached_share(operations: OperationList, gpu: GPU) -> FloatArray:
    """Share of the data of each operation that fits into the L2 cache, shape (operations,)."""
    n = numbers_of(operations)
    touched = n.element_bytes * (n.input_size + n.output_size + n.parameters)
    share: FloatArray = np.minimum(1.0, gpu.l2_bytes / np.maximum(touched, 1.0))
    return share


def cached_products(operations: OperationList, gpu: GPU, by_kernels: NDArray[np.bool_]) -> FloatArray:
    """Share of each operation that is slower inside networks by the factor of products, shape (operations,).

    `by_kernels` says whether learned kernels predict an operation, shape (operations,).
    """
    return np.where(by_kernels, cached_share(operations, gpu), 0.0)


def loaded_elements(operations: OperationList, by_kernels: NDArray[np.bool_]) -> FloatArray:
    """Elements that each operation reads and writes if the load units may bound it, else 0; shape (operations,)."""
    n = numbers_of(operations)
    # Networks were measured in inference alone, and published steps of training are closer without this.
    loading = (n.element_bytes == HALF_BYTES) & (n.is_product == 0) & (n.is_training == 0) & ~by_kernels
    elements: FloatArray = (n.input_size + n.output_size) * loading
    return elements
