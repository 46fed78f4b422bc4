"""How many bytes operations take from each memory level: shared memory, L1, L2 and DRAM.

Only hits count, as in Delestrac et al. (ASAP 2024). An access that is served by DRAM does not count as an access to L2
as well, because the energy of an access to a level includes the whole path from there to the registers. DRAM serves
what the operation reads and writes (`Operation.bytes_read`, `bytes_written`). The traffic of the other levels follows
from the tiling of products (tiling.py):

- L2. Each tile of the output loads its rows of A and its columns of B. The first load of an element comes from DRAM,
  all further ones come from L2. (Written bytes pass through L2 to DRAM, and are counted at DRAM.)
- Shared memory. All loaded elements are stored there once. Tensor cores then load parts of 64 x 64 from it
  (`loaded_tile`). On fp32 pipes each thread computes 8 x 8 outputs, because the kernels of cuBLAS named sgemm_128x128
  have 256 threads: it reads 16 elements for 64 multiplications. Products with fewer than 8 rows or columns do not use
  shared memory.

Operations with a window (pooling, depthwise convolutions) read each input several times, all but once from L1. All
other operations stream: each element passes once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...hardware.gpu import MEMORY_LEVELS
from ...operations.operation import Operation
from .operation_numbers import FAMILIES, numbers_of
from .roofline import on_tensor_cores
from .tiling import LOADED_TILE, loaded_tile

_THREAD_TILE = 8.0  # Rows, and columns, of the outputs that one thread computes on fp32 pipes.
_POOLING = FAMILIES.index("pooling")


def traffic_bytes(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Bytes that each memory level serves in one call of each operation.

    Returns:
        Bytes by operation and level, shape (operations, 4), levels in the order of `MEMORY_LEVELS`.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    n = numbers_of(operations)
    products = (n.is_product > 0) & (n.reduction > 0) & (n.columns > 0)
    depthwise = (n.is_convolution > 0) & (n.groups > 1) & (n.groups == n.channels_in)
    tiled = products & ~depthwise
    multiplications = n.flops / 2
    sums = np.maximum(n.batch * n.rows * n.columns * n.reduction, 1.0)
    passes = multiplications / sums  # 3 in training: the gradients are two more products as large as the forward one.
    loaded = passes * n.batch * n.reduction * n.element_bytes
    loaded = loaded * (n.rows * np.ceil(n.columns / LOADED_TILE) + n.columns * np.ceil(n.rows / LOADED_TILE))
    loaded = np.where(tiled, loaded, 0.0)
    side = np.where(on_tensor_cores(n, gpu), loaded_tile(n.rows, gpu), _THREAD_TILE)
    shared = np.where(np.minimum(n.rows, n.columns) >= _THREAD_TILE, multiplications * n.element_bytes * 2 / side, 0.0)
    shared = np.where(tiled & (shared > 0), shared + loaded, 0.0)
    reads = np.where(depthwise, multiplications, np.where(n.family == _POOLING, n.flops, 0.0)) * n.element_bytes
    found = np.zeros((len(operations), len(MEMORY_LEVELS)))
    found[:, 0] = shared
    found[:, 1] = np.maximum(reads - n.bytes_read, 0.0)
    found[:, 2] = np.maximum(loaded - n.bytes_read, 0.0)
    found[:, 3] = n.bytes_read + n.bytes_written
    return found
