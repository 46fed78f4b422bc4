"""Device times of PyTorch's own kernels that wait for more than the memory, counted from what they do.

Some have one thread for each element and a loop over its window, and reuse nothing (ATen/native/cuda). So what counts
are instructions: those of a thread, and those of each step of its loop.

- Depthwise convolutions, in which each channel has a filter of its own (DepthwiseConv2d.cu): in fp64, fp32 and TF32
  PyTorch does not ask cuDNN (`use_cudnn_depthwise` in Convolution.cpp). The gradient of the weight has a block for
  each position of each channel's window.
- Maximum pooling (DilatedMaxPool2d.cu) also writes the places of the maxima, in eight bytes each.
- Adaptive pooling (AdaptiveAveragePooling.cu) has a block for each channel of each image; to one pixel, it is a mean,
  with a warp for each.
- Batch norm in training reduces each channel on few multiprocessors, whose number is that of the channels. In half
  precision an instruction takes two elements (seen in the half of timm's published training steps that is not held
  back; held back, those of convolutional networks are 7 % off instead of 9, those of depthwise ones 5 instead of 9).
- Layer norm in training sums the gradients of its weights in blocks of 32 columns, each of which takes all rows in
  turn (`GammaBetaBackwardCUDAKernel` in layer_norm_kernel.cu, PyTorch 2.5). A long image of few channels waits for it:
  on the A30, 3.7 times as long as for memory. The RTX 2080 Ti, on which nothing was chosen, is met within 4 %.

Cycles of a multiprocessor were chosen on the A30: 51 depthwise convolutions, whose times then scatter by a factor of
1.05 (1.9 around the roofline), 20 poolings and 42 batch norms. In inference on an RTX 2080 Ti, which was not used,
depthwise convolutions and maximum pooling take 1.35 times as long, with a scatter of 1.1.

Softmax and layer norm in fp32 give each row of a tensor to one block of threads, which reads it in steps, and a
multiprocessor holds as many blocks as its threads allow. A row takes some thousand clock cycles to start and to add up
what the threads found, and about a thousand for each step, because each step waits for memory. This time and that of
the bytes overlap.

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
from ...hardware import GPU, per_gpu
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation_list import OperationList
from .norms import overlapped
from .operation_numbers import KIND_PLACES, is_depthwise, numbers_of
from .tiling import PASCAL, kernel_generation

_LANES = 128.0  # Threads that a multiprocessor issues in a cycle.
# What follows counts these slots. Depthwise: of a thread, and of each position of its window where the loop is
# unrolled; where it is not, positions are all that counts.
_THREAD, _UNROLLED, _LOOPED = 176.0, 13.2, 21.6
_UNROLLED_SIDES = (1, 3, 5)
# The gradient of the input, for each of its elements, and that of the weight, for elements of the output and blocks.
_GRADIENT_THREAD, _GRADIENT_POSITION = 290.0, 41.0
_WEIGHT_POSITION, _WEIGHT_BLOCK = 39.0, 1150 * _LANES
# Pooling: positions of windows, elements of the input in the gradient, and channels of images.
_POOLED_POSITION = 54.6
_UNPOOLED_THREAD, _UNPOOLED_POSITION = 604.0, 17.0
_MEAN_ROW, _ADAPTIVE_BLOCK = 60 * _LANES, 650 * _LANES
_PLACE_BYTES = 8.0
_NORM_ELEMENT = 4.4 * _LANES  # Batch norm, for an element of four bytes.
_ROW_CYCLES = 14.0  # Layer norm: cycles until the gradients of a row are added.
_ROW_PASSES = 2 / 7  # Of the seven passes over the image, those that these sums read in.
# Threads that a multiprocessor holds (CUDA C++ Programming Guide, table of technical specifications).
_FEWER_THREADS, _THREADS = {"7.5": 1024, "8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536, "12.1": 1536}, 2048
_AT_ONCE = 4  # Elements that a thread reads at once: 16 bytes of fp32.
_WARP_ROW = 1024  # Longest row that softmax computes in a warp.
_MOST_THREADS, _NORM_THREADS = 512, 128  # Of a block that computes a row: at most of softmax, and of layer norm.
# Fitted: seconds to start a kernel, and cycles of a step; for each kernel a factor on the time of memory, and cycles of
# a row besides.
_START_S, _STEP = 3e-6, 2000.0
_SOFTMAX_MEMORY, _SOFTMAX_ROW = 1.05, 6000.0
_NORM_MEMORY, _NORM_ROW = 1.4, 4500.0
_NORM_PASCAL = 2.4  # Factor on the cycles of layer norm on Pascal, fitted.


def thread_kernels_s(operations: OperationList, gpu: GPU, clock_mhz: float) -> FloatArray:
    """Seconds of the instructions of PyTorch's own kernels; 0 for operations that are none, shape (operations,).

    Other vendors than NVIDIA have kernels of their own.
    """
    others, elements, channels = operations.derived(_slots)
    lanes = others + elements * np.maximum(channels, gpu.sms) * _NORM_ELEMENT
    return np.where(gpu.is_nvidia, lanes / (_LANES * gpu.sms * clock_mhz * 1e6), 0.0)


def _slots(operations: OperationList) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Slots of all but batch norms; of these in training, the words of four bytes of a channel, and the channels."""
    n = numbers_of(operations)
    kinds = is_own_depthwise(n), _is(n, "max_pool2d"), _is(n, "adaptive_avg_pool2d")
    elements = n.input_size / n.channels_in * n.element_bytes / 4
    in_training = _is(n, "batch_norm") & (n.is_training > 0)
    lanes = np.select(kinds, [_depthwise(n), _max_pool(n), _adaptive(n)])
    return lanes, np.where(in_training, elements, 0.0), n.channels_in


def waiting_s(n: Any, gpu: GPU, clock_mhz: float, memory_s: FloatArray) -> FloatArray:
    """Seconds in which layer norms in training wait for the rows of one block, beyond those of memory.

    Returns:
        Shape (operations,); 0 for other operations.
    """
    rows = np.where(_is(n, "layer_norm") & (n.is_training > 0) & gpu.is_nvidia, n.input_size / n.last_size, 0.0)
    found: FloatArray = np.maximum(rows * _ROW_CYCLES / (clock_mhz * 1e6) - _ROW_PASSES * memory_s, 0.0)
    return np.where(rows > 0, found, 0.0)


def extra_bytes(n: Any) -> FloatArray:
    """Bytes that kernels write beside their output: the places of maxima; shape (operations,)."""
    written: FloatArray = np.where(_is(n, "max_pool2d"), _PLACE_BYTES * n.output_size, 0.0)
    return written


def is_own_depthwise(n: Any) -> Any:
    """Whether each operation is a depthwise convolution that PyTorch computes itself."""
    return is_depthwise(n) & _is(n, "conv1d", "conv2d") & (n.element_bytes >= ELEMENT_BYTES["fp32"])


def _is(n: Any, *kinds: str) -> Any:
    return np.logical_or.reduce([n.kind == KIND_PLACES[kind] for kind in kinds])


def _depthwise(n: Any) -> Any:
    window = n.reduction
    forward = np.where(np.isin(n.kernel, _UNROLLED_SIDES), _THREAD + _UNROLLED * window, _LOOPED * window)
    of_input = n.input_size * (_GRADIENT_THREAD + _GRADIENT_POSITION * window)
    of_weight = window * (n.output_size * _WEIGHT_POSITION + n.channels_out * _WEIGHT_BLOCK)
    return n.output_size * forward + (n.is_training > 0) * (of_input + of_weight)


def _max_pool(n: Any) -> Any:
    window = n.kernel**2
    of_input = n.input_size * (_UNPOOLED_THREAD + _UNPOOLED_POSITION * window / n.stride**2)
    return n.output_size * _POOLED_POSITION * window + (n.is_training > 0) * of_input


def _adaptive(n: Any) -> Any:
    planes = n.first_size * n.channels_in
    return planes * np.where(n.output_size == planes, _MEAN_ROW, _ADAPTIVE_BLOCK)


def softmax_times_s(n: Any, memory_s: FloatArray, gpu: GPU) -> FloatArray:
    """Device seconds of softmax at the boost clock, shape (operations,); `n` has their numbers."""
    threads = softmax_threads(n.last_size)
    in_blocks = n.last_size > _WARP_ROW
    cycles = np.where(in_blocks, _SOFTMAX_ROW + _STEP * softmax_steps(n.last_size, threads), 0.0)
    memory_s = memory_s * _SOFTMAX_MEMORY
    row_bytes = 2 * n.element_bytes * n.last_size
    filled = (gpu.sms * held_threads(gpu) / gpu.l2_bytes * row_bytes / threads) ** 2
    memory_s = memory_s * np.where(in_blocks & (kernel_generation(gpu) == PASCAL), 1 + filled / (1 + filled), 1.0)
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
    slower = np.where(kernel_generation(gpu) == PASCAL, _NORM_PASCAL, 1.0)
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


@per_gpu
def held_threads(gpu: GPU) -> int:
    """Threads that a multiprocessor holds."""
    return _FEWER_THREADS.get(gpu.compute_capability, _THREADS)
