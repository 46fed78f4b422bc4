"""Device times of PyTorch's softmax and layer norm in fp32 on NVIDIA's GPUs, counted from what their kernels do.

Both kernels give each row of a tensor to one block of threads, which reads it in steps, and a multiprocessor holds as
many blocks as its threads allow. A row takes some thousand clock cycles to start and to add up what the threads found,
and about a thousand for each step, because each step waits for memory. This time and that of the bytes overlap.

- Softmax (ATen/native/cuda/SoftMax.cu). Rows of up to 1024 elements stay in the registers of a warp, so their bytes
  alone count. Longer rows are read three times, by blocks of 32 to 512 threads that read four elements each. A row
  whose first element is not aligned to 16 bytes starts with a step of single elements, and what no whole step covers
  takes further such steps. The second and third time, a row comes from L1 or L2; on Pascal, it comes from memory as far
  as the rows in work exceed L2.
- Layer norm (ATen/native/cuda/layer_norm_kernel.cu). Blocks of 128 threads read four elements each per step and then
  read the row again, partly from memory. They compute a division for each element (Welford's algorithm), which is slow
  on Pascal, and for which the blocks of a multiprocessor wait for each other: few rows take less time.

The sizes of blocks are those of PyTorch's code, and NeuSight (Lee et al., ASPLOS 2025) recorded the same ones. The
constants were fitted to NeuSight's GPUs; benchmarks/public/notes.md says how exact they are without the chip that they
are tested on. A softmax along another dimension than the last is counted as one along the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from .fp32_products import kernel_generation
from .norms import overlapped

# Threads that a multiprocessor holds (CUDA C++ Programming Guide, table of technical specifications).
_FEWER_THREADS, _THREADS = {"7.5": 1024, "8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536, "12.1": 1536}, 2048
_PASCAL = 6
_AT_ONCE = 4  # Elements that a thread reads at once: 16 bytes of fp32.
_WARP_ROW = 1024  # Longest row that softmax computes in a warp.
_MOST_THREADS = 512  # Threads of a block that computes a row of softmax.
# For each kernel, fitted: a factor on the time of memory, cycles that a row and a step take, and seconds to start.
_SOFTMAX_MEMORY, _SOFTMAX_ROW, _SOFTMAX_STEP, _SOFTMAX_START_S = 1.05, 8000.0, 1500.0, 3e-6
_NORM_THREADS = 128
_NORM_MEMORY, _NORM_ROW, _NORM_STEP, _NORM_START_S = 1.4, 3600.0, 2900.0, 4e-6
_NORM_PASCAL = 2.4  # Factor on the cycles of layer norm on Pascal, fitted.
# Cycles of a row of layer norm whose block has a multiprocessor for itself, over those where it is full. Calls of
# NeuSight that waited for the host bound this: on A100, P100 and P4 they end earlier than a full multiprocessor would
# in 38, 28 and 82 % of cases, by 13, 12 and 40 % on average, and with this or any smaller share by 4, 0 and 10 %.
_NORM_ALONE = 0.4


class Rows(NamedTuple):
    """What does not depend on the GPU of softmax or layer norm; arrays of shape (operations,).

    Args:
        rows: Rows of the tensor.
        threads: Threads of the block that computes a row.
        cycles: Clock cycles that a row waits, 0 where it does not.
        row_bytes: Bytes of a row, in and out.
        start_s: Seconds besides.
    """

    rows: FloatArray
    threads: FloatArray
    cycles: FloatArray
    row_bytes: FloatArray
    start_s: float


def softmax_rows(n: Any) -> Rows:
    """Count the steps of softmax."""
    threads = softmax_threads(n.last_size)
    cycles = _SOFTMAX_ROW + _SOFTMAX_STEP * softmax_steps(n.last_size, threads)
    in_blocks = n.last_size > _WARP_ROW
    return Rows(
        n.input_size / n.last_size,
        threads,
        np.where(in_blocks, cycles, 0.0),
        2 * n.element_bytes * n.last_size,
        _SOFTMAX_START_S,
    )


def softmax_times_s(rows: Rows, memory_s: FloatArray, gpu: GPU) -> FloatArray:
    """Device seconds of softmax at the boost clock, shape (operations,)."""
    memory_s = memory_s * _SOFTMAX_MEMORY
    if kernel_generation(gpu) == _PASCAL:
        filled = (gpu.sms * held_threads(gpu) / gpu.l2_bytes * rows.row_bytes / rows.threads) ** 2
        memory_s = memory_s * np.where(rows.cycles > 0, 1 + filled / (1 + filled), 1.0)
    time_s: FloatArray = overlapped(memory_s, _waiting_s(rows, gpu)) + rows.start_s
    return time_s


def softmax_threads(length: Any) -> Any:
    """Threads of the block that computes a row of softmax: a power of two of at least an eighth of the row."""
    eighth = np.minimum(np.floor(length / (2 * _AT_ONCE)), _MOST_THREADS)
    return np.exp2(np.ceil(np.log2(np.maximum(eighth, 32))))


def softmax_steps(length: Any, threads: Any) -> Any:
    """Steps in which a block reads a row of softmax once, on average over the rows of a tensor."""
    aligned = _steps(length, threads)
    shifted = 1 + _steps(np.maximum(length - threads, 0), threads)
    share = np.where(length % 4 == 0, 1.0, np.where(length % 2 == 0, 0.5, 0.25))
    return share * aligned + (1 - share) * shifted


def layer_norm_rows(n: Any) -> Rows:
    """Count the steps of layer norm."""
    cycles = _NORM_ROW + _NORM_STEP * np.ceil(n.last_size / (_AT_ONCE * _NORM_THREADS))
    threads = np.full_like(cycles, _NORM_THREADS)
    return Rows(n.input_size / n.last_size, threads, cycles, 2 * n.element_bytes * n.last_size, _NORM_START_S)


def layer_norm_times_s(rows: Rows, memory_s: FloatArray, gpu: GPU) -> FloatArray:
    """Device seconds of layer norm at the boost clock; arguments as those of `softmax_times_s`."""
    slower = _NORM_PASCAL if kernel_generation(gpu) == _PASCAL else 1.0
    time_s: FloatArray = overlapped(memory_s * _NORM_MEMORY, slower * _waiting_s(rows, gpu, _NORM_ALONE)) + rows.start_s
    return time_s


def _steps(length: Any, threads: Any) -> Any:
    """Whole steps of four elements for each thread, and steps of one for what is left."""
    whole = np.floor(length / (_AT_ONCE * threads))
    return whole + np.ceil((length - whole * _AT_ONCE * threads) / threads)


def _waiting_s(rows: Rows, gpu: GPU, alone: float = 1.0) -> FloatArray:
    """Seconds until all rows are done, where each multiprocessor holds some blocks at a time; at least those alone."""
    turns = np.maximum(rows.rows * rows.threads / (gpu.sms * held_threads(gpu)), alone)
    waiting_s: FloatArray = turns * rows.cycles / (gpu.boost_clock_mhz * 1e6)
    return waiting_s


def held_threads(gpu: GPU) -> int:
    """Threads that a multiprocessor holds."""
    return _FEWER_THREADS.get(gpu.compute_capability, _THREADS)
