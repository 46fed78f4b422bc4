"""Kernels of PyTorch's own that are slower than memory, because each element takes many instructions.

They have one thread for each element and a loop over its window, and reuse nothing (ATen/native/cuda). So what counts
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
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES
from .operation_numbers import KIND_PLACES

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


def thread_kernels_s(n: Any, gpu: GPU, clock_mhz: float) -> FloatArray:
    """Seconds of the instructions of PyTorch's own kernels; 0 for operations that are none.

    Args:
        n: The numbers of the operations (`numbers_of`).
        gpu: The GPU; other vendors than NVIDIA have kernels of their own.
        clock_mhz: Graphics clock.

    Returns:
        Shape (operations,).
    """
    if not gpu.is_nvidia:
        return np.zeros(len(n.kind))
    lanes = np.select(
        [is_depthwise(n), _is(n, "max_pool2d"), _is(n, "adaptive_avg_pool2d"), _is(n, "batch_norm")],
        [_depthwise(n), _max_pool(n), _adaptive(n), _batch_norm(n, gpu)],
    )
    seconds: FloatArray = lanes / (_LANES * gpu.sms * clock_mhz * 1e6)
    return seconds


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


def is_depthwise(n: Any) -> Any:
    """Whether each operation is a depthwise convolution that PyTorch computes itself."""
    return _is(n, "conv1d", "conv2d") & (n.groups > 1) & (n.groups == n.channels_in) & _is_wide(n)


def _is_wide(n: Any) -> Any:
    return n.element_bytes >= ELEMENT_BYTES["fp32"]


def _is(n: Any, *kinds: str) -> Any:
    return np.isin(n.kind, [KIND_PLACES[kind] for kind in kinds])


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


def _batch_norm(n: Any, gpu: GPU) -> Any:
    each = n.input_size / n.channels_in * n.element_bytes / 4
    return np.where(n.is_training > 0, each * np.maximum(n.channels_in, gpu.sms) * _NORM_ELEMENT, 0.0)
