"""Convolutions as cuDNN computes them: the ways there are, what each costs, and the least.

On fp32 pipes a convolution is computed in one of four ways, and the library takes about the quickest. Each is work in
whole waves of blocks, and bytes that are moved:

- implicit: one matrix product, whose rows are gathered from the images as it goes (Chetlur et al., arXiv 1410.0759).
- fused: Winograd's F(2 x 2, 3 x 3) in one kernel, with 2.25 times fewer multiplications (Lavin and Gray, CVPR 2016).
  A block computes 4 x 8 squares of 2 x 2 outputs in 32 channels; what lies beyond an image's edge is computed, too.
- separate: Winograd's F(4 x 4, 3 x 3). Images and weights are transformed, 36 matrix products follow, and the results
  are transformed back: four times fewer multiplications, but what is transformed passes through memory.
- fourier: the same with Fourier transforms, where image and window fit into 16 x 16 or 32 x 32 pixels together. (Larger
  images can be cut into such squares; cuDNN seldom does.)

The last three are for convolutions that move step by step and are neither dilated nor grouped. Their blocks, and that
images of "separate" are taken by sixteens, are read off the grids of the kernels that NeuSight (Lee et al., ASPLOS
2025) recorded on five GPUs from Pascal to Ampere. The shares of peak and the start-ups are round numbers that leave
little spread there and on the A30 and the RTX 2080 Ti; with them alone the device time of half of the A30's fp32
convolutions is met within 8 %. None of these GPUs is an independent test of them.

Tensor cores read tensors whose channels lie side by side, so a window of more than one pixel is transposed before and
after: three times the traffic. A window of one pixel is a product as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..hardware import GPU
from .bandwidth import reached_bandwidth

FloatArray = NDArray[np.float64]

CONVOLUTION_NAMES: tuple[str, ...] = (
    "log_least_way",
    "log_least_way_back",
    "log_fused_over_implicit",
    "log_separate_over_implicit",
    "log_fourier_over_implicit",
    "position_alignment",
)
"""What `Convolutions.features` gives."""

_IMPLICIT_TILES, _TENSOR_TILE = ((128, 64), (128, 32)), (128, 64)
_PRODUCT_TILE, _FOURIER_TILE = (128, 128), (64, 64)
_NARROW_SHARE = 0.7
_IMPLICIT_SHARE, _FUSED_SHARE, _PRODUCT_SHARE, _TENSOR_SHARE = 0.75, 0.5, 0.85, 0.6
_FUSED_SQUARES, _FUSED_CHANNELS, _FUSED_MULTIPLICATIONS = (4, 8), 32, 16
_SEPARATE_MULTIPLICATIONS, _SEPARATE_IMAGES, _SEPARATE_SIDE = 36, 16, 4
_FOURIER_SIZES = (16, 32)
_COMPLEX = 4.0  # Products of real numbers in one of complex numbers; FLOPs alike.
_START_UP = 8  # A block takes as long as so many further steps of its reduction before it computes.
_LEAST_WAVES = 2  # A block that has a multiprocessor to itself waits for memory as long as another would compute.
_TRANSPOSED = 3  # Passes over images that are transposed: read, written, and read again.
_ELEMENT = 4.0
_MOST_LOG = 2.0  # Ratios beyond are alike: the way is not taken, or does not exist.
_LOADED = 4
_TRAINING_PASSES = 3.0
_ALIGNMENTS = (2, 4, 8)


class _Pass(NamedTuple):
    """One product of a convolution: its forward, or the gradient of its input."""

    channels_in: Any
    channels_out: Any
    rows: Any
    reduction: Any


class Work(NamedTuple):
    """What convolutions cost: FLOPs that the GPU could do in their time, bytes, and whether one waits for the other.

    Args:
        flops: Infinite where there is no such way.
        bytes: To and from device memory.
        in_turn: Where transforms and products are kernels of their own, which do not overlap.
    """

    flops: FloatArray
    bytes: FloatArray
    in_turn: Any

    def time_s(self, peak_flops: Any, bandwidth: float) -> FloatArray:
        """Seconds at so many FLOPs and bytes per second."""
        compute_s, memory_s = self.flops / peak_flops, self.bytes / bandwidth
        together = np.cbrt(compute_s * compute_s * compute_s + memory_s * memory_s * memory_s)
        time_s: FloatArray = np.where(self.in_turn, compute_s + memory_s, together)
        return time_s


def _product(rows: Any, columns: Any, reduction: Any, tile: tuple[int, int], sms: int, count: Any = 1) -> FloatArray:
    """FLOPs that fit into the whole waves of a number of equal products."""
    blocks = count * np.ceil(rows / tile[0]) * np.ceil(columns / tile[1])
    flops: FloatArray = _slots(blocks, sms) * (2.0 * tile[0] * tile[1]) * (reduction + _START_UP)
    return flops


def _slots(blocks: Any, sms: int) -> Any:
    return np.maximum(np.ceil(blocks / sms), _LEAST_WAVES) * sms


def _implicit(n: Any, p: _Pass, sms: int) -> Work:
    wide, narrow = (_product(p.rows, p.channels_out, p.reduction, tile, sms) for tile in _IMPLICIT_TILES)
    return Work(np.minimum(wide, narrow / _NARROW_SHARE) / _IMPLICIT_SHARE, _moved(n), False)


def _on_tensor_cores(n: Any, p: _Pass, sms: int) -> Work:
    flops = _product(p.rows, p.channels_out, p.reduction, _TENSOR_TILE, sms)
    images = n.element_bytes * (n.input_size + n.output_size)
    return Work(flops / _TENSOR_SHARE, _moved(n) + np.where(_window(n) > 1, _TRANSPOSED - 1, 0) * images, False)


def _fused(n: Any, p: _Pass, sms: int) -> Work:
    high, wide = _FUSED_SQUARES
    blocks = n.first_size * np.ceil(n.height / (2 * high)) * np.ceil(n.width / (2 * wide))
    blocks = blocks * np.ceil(p.channels_out / _FUSED_CHANNELS)
    each = 2.0 * _FUSED_MULTIPLICATIONS * high * wide * _FUSED_CHANNELS * (p.channels_in + _START_UP)
    return Work(_if(_is_three(n), _slots(blocks, sms) * each / _FUSED_SHARE), _moved(n), False)


def _separate(n: Any, p: _Pass, sms: int) -> Work:
    images = np.ceil(n.first_size / _SEPARATE_IMAGES) * _SEPARATE_IMAGES
    squares = images * np.ceil(n.height / _SEPARATE_SIDE) * np.ceil(n.width / _SEPARATE_SIDE)
    count = _SEPARATE_MULTIPLICATIONS
    flops = _product(squares, p.channels_out, p.channels_in, _PRODUCT_TILE, sms, count) / _PRODUCT_SHARE
    return Work(_if(_is_three(n), flops), _moved(n) + 2 * _ELEMENT * count * _transformed(squares, p), True)


def _fourier(n: Any, p: _Pass, sms: int) -> Work:
    needed = np.maximum(n.height, n.width) + n.kernel - 1
    size = np.where(needed > _FOURIER_SIZES[0], _FOURIER_SIZES[1], _FOURIER_SIZES[0])
    count = size * (size // 2 + 1)  # Of real numbers, so the other half of the frequencies is the same.
    flops = _COMPLEX * _product(n.first_size, p.channels_out, p.channels_in, _FOURIER_TILE, sms, count)
    fits = (n.transforms > 0) & (needed <= _FOURIER_SIZES[1])
    moved = _moved(n) + 4 * _ELEMENT * count * _transformed(n.first_size, p)
    return Work(_if(fits, flops / _PRODUCT_SHARE), moved, True)


def _transformed(squares: Any, p: _Pass) -> Any:
    """Elements of inputs, outputs and weights for each number of a transformed square."""
    return squares * (p.channels_in + p.channels_out) + p.channels_in * p.channels_out


def _moved(n: Any) -> Any:
    return n.element_bytes * (n.input_size + n.output_size + n.parameters)


def _window(n: Any) -> Any:
    return n.reduction / n.channels_in


def _is_three(n: Any) -> Any:
    return (n.transforms > 0) & (n.kernel == 3)


def _if(fits: Any, flops: Any) -> FloatArray:
    found: FloatArray = np.where(fits, flops, np.inf)
    return found


def _forward(n: Any) -> _Pass:
    return _Pass(n.channels_in, n.channels_out, n.rows, n.reduction)


def _backward(n: Any) -> _Pass:
    # Where the window moves in steps, each position meets a part of it only.
    reduction = n.channels_out * _window(n) / (n.stride * n.stride)
    return _Pass(n.channels_out, n.channels_in, n.input_size / n.channels_in, reduction)


def _fits_tensor_cores(n: Any) -> Any:
    # They load four channels at once; others take the fp32 pipes.
    return (n.channels_in % _LOADED == 0) & (n.channels_out % _LOADED == 0)


@dataclass(frozen=True)
class Convolutions:
    """The dense ones among operations: those that are not grouped.

    Args:
        places: Which of the operations they are.
        n: Their numbers.
        gpu: Where they run.
        tensor: Where they run on tensor cores.
        peak: FLOPs per second of the precision that each runs in, at the boost clock.
    """

    places: NDArray[np.int_]
    n: Any
    gpu: GPU
    tensor: NDArray[np.bool_]
    peak: FloatArray

    @classmethod
    def among(cls, n: Any, gpu: GPU, on_tensor_cores: Any, peak: FloatArray) -> Self:
        """Those among operations.

        Args:
            n: Numbers of all operations.
            gpu: Where they run.
            on_tensor_cores: Where they count as running there.
            peak: FLOPs per second of each one's precision.
        """
        places = np.flatnonzero((n.is_convolution > 0) & (n.groups == 1))
        mine = type(n)(*(values[places] for values in n))
        tensor = _fits_tensor_cores(mine) & (on_tensor_cores[places] > 0)
        return cls(places, mine, gpu, tensor, peak[places])

    @property
    def _bandwidth(self) -> float:
        return reached_bandwidth(self.gpu)

    def _on_pipes(self, p: _Pass) -> tuple[tuple[Work, ...], FloatArray]:
        """All ways on fp32 pipes, and their times, shape (ways, operations)."""
        ways = tuple(way(self.n, p, self.gpu.sms) for way in (_implicit, _fused, _separate, _fourier))
        peak = self.gpu.peak_flops["fp32"]
        return ways, np.array([way.time_s(peak, self._bandwidth) for way in ways])

    @cached_property
    def _forward(self) -> tuple[tuple[Work, ...], FloatArray]:
        return self._on_pipes(_forward(self.n))

    @cached_property
    def least(self) -> Work:
        """What they cost at least, in all passes of their mode; FLOPs are those of their own precision."""
        ways, times_s = self._forward
        taken = np.where(self.tensor, len(ways), np.argmin(times_s, axis=0))
        all_ways = (*ways, _on_tensor_cores(self.n, _forward(self.n), self.gpu.sms))
        pipes = np.where(self.tensor, 1.0, self.peak / self.gpu.peak_flops["fp32"])
        # The gradients of input and weight are products as large as the forward, each.
        passes = np.where(self.n.is_training > 0, _TRAINING_PASSES, 1.0)
        return Work(
            np.choose(taken, [way.flops for way in all_ways]) * passes * pipes,
            np.choose(taken, [way.bytes for way in all_ways]) * passes,
            np.array([way.in_turn for way in all_ways])[taken],
        )

    def _least_s(self, p: _Pass, times_s: FloatArray) -> FloatArray:
        tensor_s = _on_tensor_cores(self.n, p, self.gpu.sms).time_s(self.peak, self._bandwidth)
        least_s: FloatArray = np.where(self.tensor, tensor_s, np.min(times_s, axis=0))
        return least_s

    def features(self, count: int) -> list[FloatArray]:
        """Convolutions as each way sees them; 0 for everything else.

        Args:
            count: Of all operations.

        Returns:
            One array per name of CONVOLUTION_NAMES: the least time over that of the FLOPs alone, forward and of the
            gradient of the input; ways over the first; and how well rows of positions are aligned.
        """
        n, (_, times_s), back = self.n, self._forward, _backward(self.n)
        own_s = 2.0 * n.rows * n.columns * n.reduction / self.peak
        over = np.where(self.tensor, np.inf, times_s[1:] / times_s[0])
        positions = n.input_size / (n.first_size * n.channels_in)
        values = [
            np.log(self._least_s(_forward(n), times_s) / own_s),
            np.log(self._least_s(back, self._on_pipes(back)[1]) / own_s),
            *np.clip(np.log(over), -_MOST_LOG, _MOST_LOG),
            np.sum([positions % alignment == 0 for alignment in _ALIGNMENTS], axis=0),
        ]
        columns = np.zeros((len(values), count))
        columns[:, self.places] = values
        return list(columns)
