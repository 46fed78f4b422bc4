"""How many bytes operations take from each memory level (shared memory, L1, L2, DRAM), and what an access costs.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...hardware.gpu import MEMORY_LEVELS
from ...operations.operation import Operation
from .energy import ENERGY_SPREAD, PRIOR_ENERGY, best_known, process_factor, relative_voltage
from .operation_numbers import FAMILIES, is_depthwise, numbers_of
from .roofline import on_tensor_cores
from .tiling import LOADED_TILE, loaded_tile

_THREAD_TILE = 8.0  # Rows, and columns, of the outputs that one thread computes on fp32 pipes.
_POOLING = FAMILIES.index("pooling")

ACCESS_BYTES = 32
"""Bytes of a sector, the smallest unit that caches and DRAM of NVIDIA GPUs transfer."""

# The paper prints no error of its four figures, and it used one board, one clock and one sensor. A tenth is our guess.
_MEASURED_SPREAD = 1.1
_LOGIC_SPREAD, _DRAM_SPREAD = ENERGY_SPREAD[0], ENERGY_SPREAD[2]


def traffic_bytes(operations: Sequence[Operation], gpu: GPU) -> FloatArray:
    """Bytes that each memory level serves in one call of each operation.

    Returns:
        Bytes by operation and level, shape (operations, 4), levels in the order of `MEMORY_LEVELS`.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    n = numbers_of(operations)
    products = (n.is_product > 0) & (n.reduction > 0) & (n.columns > 0)
    depthwise = is_depthwise(n)
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


@dataclass(frozen=True)
class AccessEnergies:
    """Energy of accesses on a GPU at a clock.

    Args:
        joules: Memory level -> joules of an access to 32 bytes.
        spread: Memory level -> standard deviation, as a factor.
        source: Source of the figures, as a sentence.
        measured: Whether they were measured on a GPU of this name.
    """

    joules: Mapping[str, float]
    spread: Mapping[str, float]
    source: str
    measured: bool

    @classmethod
    def of(cls, gpu: GPU, clock_mhz: float) -> Self:
        """The energies of a GPU at a clock; those of the A100, scaled, if none were measured on it.

        The levels on the chip scale with the manufacturing process and with the square of the supply voltage, which
        follows the clock. DRAM scales with its type, HBM or GDDR; it has a clock and a voltage of its own.
        """
        voltage = float(relative_voltage(gpu, clock_mhz)[0]) ** 2
        known, logic, dram = gpu.access_energy_j, voltage, 1.0
        measured = known is not None
        if known is None:
            known = cast(Mapping[str, float], best_known().access_energy_j)
            logic = voltage * process_factor(gpu) / process_factor(best_known())
            dram = 1.0 if gpu.has_hbm else PRIOR_ENERGY.gddr_j_per_byte / PRIOR_ENERGY.hbm_j_per_byte
        factors = {level: dram if level == "dram" else logic for level in MEMORY_LEVELS}
        priors = {level: _DRAM_SPREAD if level == "dram" else _LOGIC_SPREAD for level in MEMORY_LEVELS}
        return cls(
            {level: known[level] * factors[level] for level in MEMORY_LEVELS},
            dict.fromkeys(MEMORY_LEVELS, _MEASURED_SPREAD) if measured else priors,
            "measured on a GPU of this kind (its sources say by whom)"
            if measured
            else "the A100's, scaled by process and type of memory (prior)",
            measured,
        )
