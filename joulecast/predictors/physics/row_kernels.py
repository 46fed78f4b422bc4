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
  on Pascal.

The sizes of blocks are those of PyTorch's code, and NeuSight (Lee et al., ASPLOS 2025) recorded the same ones. The
constants were fitted to NeuSight's GPUs; benchmarks/public/notes.md says how exact they are without the chip that they
are tested on. A softmax along another dimension than the last is counted as one along the last.
"""

from __future__ import annotations

from typing import Any

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
_MOST_THREADS, _NORM_THREADS = (
    512,
    128,
)  # Threads of a block that computes a row: at most of softmax, and of layer norm.
# Fitted: seconds to start a kernel, and cycles of a step; for each kernel a factor on the time of memory, and cycles of
# a row besides.
_START_S, _STEP = 3e-6, 2000.0
_SOFTMAX_MEMORY, _SOFTMAX_ROW = 1.05, 6000.0
_NORM_MEMORY, _NORM_ROW = 1.4, 4500.0
_NORM_PASCAL = 2.4  # Factor on the cycles of layer norm on Pascal, fitted.


def softmax_times_s(n: Any, memory_s: FloatArray, gpu: GPU) -> FloatArray:
    """Device seconds of softmax at the boost clock, shape (operations,); `n` has their numbers."""
    threads = softmax_threads(n.last_size)
    in_blocks = n.last_size > _WARP_ROW
    cycles = np.where(in_blocks, _SOFTMAX_ROW + _STEP * softmax_steps(n.last_size, threads), 0.0)
    memory_s = memory_s * _SOFTMAX_MEMORY
    if kernel_generation(gpu) == _PASCAL:
        row_bytes = 2 * n.element_bytes * n.last_size
        filled = (gpu.sms * held_threads(gpu) / gpu.l2_bytes * row_bytes / threads) ** 2
        memory_s = memory_s * np.where(in_blocks, 1 + filled / (1 + filled), 1.0)
    time_s: FloatArray = overlapped(memory_s, _waiting_s(n, threads, cycles, gpu)) + _START_S
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


def layer_norm_times_s(n: Any, memory_s: FloatArray, gpu: GPU) -> FloatArray:
    """Device seconds of layer norm at the boost clock; arguments as those of `softmax_times_s`."""
    cycles = _NORM_ROW + _STEP * np.ceil(n.last_size / (_AT_ONCE * _NORM_THREADS))
    slower = _NORM_PASCAL if kernel_generation(gpu) == _PASCAL else 1.0
    waiting_s = _waiting_s(n, _NORM_THREADS, slower * cycles, gpu)
    time_s: FloatArray = overlapped(memory_s * _NORM_MEMORY, waiting_s) + _START_S
    return time_s


def _steps(length: Any, threads: Any) -> Any:
    """Whole steps of four elements for each thread, and steps of one for what is left."""
    whole = np.floor(length / (_AT_ONCE * threads))
    return whole + np.ceil((length - whole * _AT_ONCE * threads) / threads)


def _waiting_s(n: Any, threads: Any, cycles: FloatArray, gpu: GPU) -> FloatArray:
    """Seconds until all rows are done, where each multiprocessor holds some blocks at a time; at least those of one."""
    turns = np.maximum(n.input_size / n.last_size * threads / (gpu.sms * held_threads(gpu)), 1.0)
    waiting_s: FloatArray = turns * cycles / (gpu.boost_clock_mhz * 1e6)
    return waiting_s


def held_threads(gpu: GPU) -> int:
    """Threads that a multiprocessor holds."""
    return _FEWER_THREADS.get(gpu.compute_capability, _THREADS)
