"""How many bytes operations take from each memory level: shared memory, L1, L2 and DRAM.

Only hits count, as in Delestrac et al. (ASAP 2024): what comes from DRAM is no access to L2 as well, because the energy
of an access to a level holds all of its way to the registers. DRAM has what the operation reads and writes
(`Operation.bytes_read`, `bytes_written`). For products the tiling says the rest:

- L2. Each tile of the output loads its rows of A and its columns of B. What the tiles load beyond the first reading
  comes from L2. (What is written passes through it on its way to DRAM, and is counted there.)
- Shared memory. What tiles load is stored there once. Tensor cores then load 64 x 64 parts of it (loaded_tile); the
  fp32 pipes do 8 x 8 outputs in each thread, as the kernels of cuBLAS named sgemm_128x128 with 256 threads must, which
  reads 16 elements for 64 multiplications. Products of fewer than 8 rows or columns use none.

Windows (pooling, depthwise convolutions) read each input several times, from L1. Everything else streams: each element
passes once.
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
from .tensor_tiles import LOADED_TILE, loaded_tile

_THREAD_TILE = 8.0  # Outputs of a thread on fp32 pipes, in each direction.
_POOLING = FAMILIES.index("pooling")


def traffic_bytes(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Bytes that one call of each operation takes from each level, in the order of `MEMORY_LEVELS`.

    Args:
        operations: What runs.
        gpu: The GPU that they run on.

    Returns:
        Shape (operations, 4); hits alone.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    n = numbers_of(operations)
    products = (n.is_product > 0) & (n.reduction > 0) & (n.columns > 0)
    depthwise = (n.is_convolution > 0) & (n.groups > 1) & (n.groups == n.channels_in)
    tiled = products & ~depthwise
    multiplications = n.flops / 2
    sums = np.maximum(n.batch * n.rows * n.columns * n.reduction, 1.0)
    passes = multiplications / sums  # the gradients of a product are products as large as the forward, each
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
