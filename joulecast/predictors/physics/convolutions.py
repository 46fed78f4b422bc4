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
little spread there and on the A30 and the RTX 2080 Ti: none of these GPUs is an independent test of them.

Tensor cores read tensors whose channels lie side by side, so a window of more than one pixel is transposed before and
after: three times the traffic. A window of one pixel is a product as it stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from .bandwidth import reached_bandwidth
from .norms import overlapped
from .tiling import Tile, tile_count

CONVOLUTION_NAMES: tuple[str, ...] = (
    "log_least_way",
    "log_least_way_back",
    "log_fused_over_implicit",
    "log_separate_over_implicit",
    "log_fourier_over_implicit",
    "position_alignment",
)
"""What `Convolutions.features` gives."""

# Rows of the arrays below: the ways on fp32 pipes, implicit in two shapes of blocks, and last that on tensor cores.
_IMPLICIT, _FUSED, _TENSOR = 0, 2, 5
_IN_TURN = np.array([[False], [False], [False], [True], [True], [False]])
_WIDE, _NARROW, _PRODUCT_TILE, _FOURIER_TILE = Tile(128, 64), Tile(128, 32), Tile(128, 128), Tile(64, 64)
_IMPLICIT_SHARE, _FUSED_SHARE, _PRODUCT_SHARE, _TENSOR_SHARE = 0.75, 0.5, 0.85, 0.6
_NARROW_SHARE = 0.7 * _IMPLICIT_SHARE
_FUSED_SQUARES, _FUSED_CHANNELS, _FUSED_MULTIPLICATIONS = (4, 8), 32, 16
_SEPARATE_MULTIPLICATIONS, _SEPARATE_IMAGES, _SEPARATE_SIDE = 36, 16, 4
_FOURIER_SIZES = (16, 32)
_COMPLEX = 4.0  # Products of real numbers in one of complex numbers; FLOPs alike.
_START_UP = 8  # A block takes as long as so many further steps of its reduction before it computes.
_LEAST_WAVES = 2  # A block that has a multiprocessor to itself waits for memory as long as another would compute.
_TRANSPOSED = 3  # Passes over images that are transposed: read, written, and read again.
_LOADED = 4  # Channels that tensor cores load at once.
_TRAINING_PASSES = 3.0  # The gradients of input and weight are products as large as the forward, each.
_MOST_LOG = 2.0  # Ratios beyond are alike: the way is not taken, or does not exist.
_ALIGNMENTS = (2, 4, 8)


class Work(NamedTuple):
    """What convolutions cost.

    Args:
        flops: That the GPU could do in their time.
        bytes: To and from device memory.
        in_turn: Where transforms and products are kernels of their own, so that one waits for the other.
    """

    flops: FloatArray
    bytes: FloatArray
    in_turn: NDArray[np.bool_]


class _Pass(NamedTuple):
    """One product of convolutions: their forward, or the gradient of their input."""

    channels_in: Any
    channels_out: Any
    rows: Any
    reduction: Any


class Blocks(NamedTuple):
    """A pass in every way: arrays of shape (ways, convolutions).

    Args:
        number: Of blocks; infinite where there is no such way.
        flops: That the GPU could do in the time of one.
        bytes: That the pass moves.
    """

    number: FloatArray
    flops: FloatArray
    bytes: FloatArray

    def flops_on(self, sms: int) -> FloatArray:
        """FLOPs that fit into the whole waves on so many multiprocessors."""
        flops: FloatArray = np.maximum(np.ceil(self.number / sms), _LEAST_WAVES) * (sms * self.flops)
        return flops

    def times_s(self, gpu: GPU, peak_flops: FloatArray | float) -> FloatArray:
        """Seconds of each way, on tensor cores with a peak for each convolution, or one for all."""
        compute_s = self.flops_on(gpu.sms)
        compute_s[:_TENSOR] /= gpu.peak_flops["fp32"]
        compute_s[_TENSOR] /= peak_flops
        memory_s = self.bytes / reached_bandwidth(gpu)
        times_s: FloatArray = np.where(_IN_TURN, compute_s + memory_s, overlapped(compute_s, memory_s))
        return times_s


def _blocks(n: Any, p: _Pass) -> Blocks:
    moved = n.element_bytes * (n.input_size + n.output_size + n.parameters)
    images = n.element_bytes * (n.input_size + n.output_size)
    is_three = (n.transforms > 0) & (n.kernel == 3)
    # Fused: whole blocks of squares.
    high, wide = _FUSED_SQUARES
    fused = n.first_size * np.ceil(n.height / (2 * high)) * np.ceil(n.width / (2 * wide))
    fused = fused * np.ceil(p.channels_out / _FUSED_CHANNELS)
    of_fused = 2.0 * _FUSED_MULTIPLICATIONS * high * wide * _FUSED_CHANNELS
    # Separate.
    by_sixteens = np.ceil(n.first_size / _SEPARATE_IMAGES) * _SEPARATE_IMAGES
    squares = by_sixteens * np.ceil(n.height / _SEPARATE_SIDE) * np.ceil(n.width / _SEPARATE_SIDE)
    separate = _SEPARATE_MULTIPLICATIONS * tile_count(squares, p.channels_out, _PRODUCT_TILE)
    # Fourier: the other half of the frequencies of real numbers is the same.
    needed = np.maximum(n.height, n.width) + n.kernel - 1
    size = np.where(needed > _FOURIER_SIZES[0], _FOURIER_SIZES[1], _FOURIER_SIZES[0])
    frequencies = size * (size // 2 + 1)
    fourier = frequencies * tile_count(n.first_size, p.channels_out, _FOURIER_TILE)
    fits = (n.transforms > 0) & (needed <= _FOURIER_SIZES[1])
    steps, channels = p.reduction + _START_UP, p.channels_in + _START_UP
    wide_tiles = tile_count(p.rows, p.channels_out, _WIDE)
    return Blocks(
        np.array(
            [
                wide_tiles,
                tile_count(p.rows, p.channels_out, _NARROW),
                np.where(is_three, fused, np.inf),
                np.where(is_three, separate, np.inf),
                np.where(fits, fourier, np.inf),
                wide_tiles,
            ]
        ),
        np.array(
            [
                _WIDE.flops_per_step * steps / _IMPLICIT_SHARE,
                _NARROW.flops_per_step * steps / _NARROW_SHARE,
                of_fused * channels / _FUSED_SHARE,
                _PRODUCT_TILE.flops_per_step * channels / _PRODUCT_SHARE,
                _COMPLEX * _FOURIER_TILE.flops_per_step * channels / _PRODUCT_SHARE,
                _WIDE.flops_per_step * steps / _TENSOR_SHARE,
            ]
        ),
        np.array(
            [
                moved,
                moved,
                moved,
                moved + 2 * n.element_bytes * _SEPARATE_MULTIPLICATIONS * _transformed(squares, p),
                moved + _COMPLEX * n.element_bytes * frequencies * _transformed(n.first_size, p),
                moved + np.where(_window(n) > 1, _TRANSPOSED - 1, 0) * images,
            ]
        ),
    )


def _transformed(squares: Any, p: _Pass) -> Any:
    """Elements of inputs, outputs and weights for each number of a transformed square."""
    return squares * (p.channels_in + p.channels_out) + p.channels_in * p.channels_out


def _window(n: Any) -> Any:
    return n.reduction / n.channels_in


class Convolutions(NamedTuple):
    """The dense ones among operations, those that are not grouped, on any GPU.

    Args:
        operations: How many there are in all.
        places: Which of them are dense convolutions.
        forward, backward: Blocks of the forward, and of the gradient of the input.
        own_flops: FLOPs of each forward pass.
        passes: How many passes of about the same work the mode has.
        precision: Of each, as `numbers_of` calls it.
        element_bytes: Bytes of one element of each operation's tensors.
        loads: Where tensor cores can load the channels.
        alignment: How well rows of positions are aligned: by how many of 2, 4 and 8 their number can be divided.
    """

    operations: int
    places: NDArray[np.int_]
    forward: Blocks
    backward: Blocks
    own_flops: FloatArray
    passes: FloatArray
    precision: FloatArray
    element_bytes: FloatArray
    loads: NDArray[np.bool_]
    alignment: FloatArray

    @classmethod
    def of(cls, n: Any) -> Self:
        """Those among operations whose numbers are given."""
        places = np.flatnonzero((n.is_convolution > 0) & (n.groups == 1))
        mine = type(n)(*(values[places] for values in n))
        positions = mine.input_size / (mine.first_size * mine.channels_in)
        # Where the window moves in steps, each position of the input meets a part of it only.
        met = mine.channels_out * _window(mine) / (mine.stride * mine.stride)
        return cls(
            operations=len(n.rows),
            places=places,
            forward=_blocks(mine, _Pass(mine.channels_in, mine.channels_out, mine.rows, mine.reduction)),
            backward=_blocks(mine, _Pass(mine.channels_out, mine.channels_in, mine.first_size * positions, met)),
            own_flops=2.0 * mine.rows * mine.columns * mine.reduction,
            passes=np.where(mine.is_training > 0, _TRAINING_PASSES, 1.0),
            precision=mine.precision,
            element_bytes=mine.element_bytes,
            loads=(mine.channels_in % _LOADED == 0) & (mine.channels_out % _LOADED == 0),
            alignment=np.sum([positions % alignment == 0 for alignment in _ALIGNMENTS], axis=0) * 1.0,
        )

    def _taken(self, times_s: FloatArray, on_tensor_cores: NDArray[np.bool_]) -> NDArray[np.int_]:
        """The way of each: on tensor cores where its precision runs there and they can load it."""
        tensor = self.loads & on_tensor_cores
        taken: NDArray[np.int_] = np.where(tensor, _TENSOR, np.argmin(times_s[:_TENSOR], axis=0))
        return taken

    def least(self, gpu: GPU) -> Work:
        """What they cost at least on fp32 pipes, in all passes of their mode."""
        peak_flops = gpu.peak_flops["fp32"]
        taken = np.argmin(self.forward.times_s(gpu, peak_flops)[:_TENSOR], axis=0)
        each = np.arange(len(taken))
        flops = self.forward.flops_on(gpu.sms)[taken, each] * self.passes
        return Work(flops, self.forward.bytes[taken, each] * self.passes, _IN_TURN[taken, 0])

    def features(self, gpu: GPU, peak_flops: FloatArray, on_tensor_cores: NDArray[np.bool_]) -> FloatArray:
        """Convolutions as each way sees them; 0 for other operations.

        Args:
            gpu: The GPU that they run on.
            peak_flops: FLOPs per second of the precision of each convolution.
            on_tensor_cores: Whether the precision of each runs on tensor cores.

        Returns:
            Shape (len(CONVOLUTION_NAMES), operations): the least time over that of the FLOPs alone, forward and of the
            gradient of the input; ways over the first; and the alignment.
        """
        forward_s, backward_s = (blocks.times_s(gpu, peak_flops) for blocks in (self.forward, self.backward))
        own_s, each = self.own_flops / peak_flops, np.arange(len(self.places))
        taken, back = (self._taken(times_s, on_tensor_cores) for times_s in (forward_s, backward_s))
        ratio = forward_s[_FUSED:_TENSOR] / np.min(forward_s[_IMPLICIT:_FUSED], axis=0)
        ratio[:, taken == _TENSOR] = np.inf
        columns = np.zeros((len(CONVOLUTION_NAMES), self.operations))
        columns[:, self.places] = [
            np.log(forward_s[taken, each] / own_s),
            np.log(backward_s[back, each] / own_s),
            *np.clip(np.log(ratio), -_MOST_LOG, _MOST_LOG),
            self.alignment,
        ]
        return columns
