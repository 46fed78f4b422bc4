"""Convolutions as cuDNN computes them: its algorithms, the cost of each, and the cost of the quickest.

On fp32 pipes cuDNN has four algorithms for a convolution, and usually takes the quickest. The cost of each is work in
whole waves of blocks (tiling.py), and bytes to and from memory:

- implicit: one matrix product. Its rows are gathered from the images while it is computed (Chetlur et al., arXiv
  1410.0759).
- fused: Winograd's F(2 x 2, 3 x 3) in one kernel, with 2.25 times fewer multiplications (Lavin and Gray, CVPR 2016).
  A block computes 4 x 8 squares of 2 x 2 outputs in 32 channels, also those beyond the edge of an image.
- separate: Winograd's F(4 x 4, 3 x 3) in several kernels. Images and weights are transformed, 36 matrix products
  follow, and the results are transformed back. There are four times fewer multiplications, but transformed numbers are
  written to memory and read again.
- fourier: as "separate", with Fourier transforms, if image and window fit together into 16 x 16 or 32 x 32 pixels.
  (Larger images can be cut into such squares, but cuDNN seldom does so.)

The last three need a stride and a dilation of one, and no groups. Their block sizes, and that "separate" computes
images in multiples of sixteen, were derived from the grids of the kernels that NeuSight (Lee et al., ASPLOS 2025)
recorded on five GPUs from Pascal to Ampere. The shares of the peak and the start-up steps are round numbers, chosen so
that measured times scatter little there and on the A30 and the RTX 2080 Ti. None of these GPUs is an independent test
of them.

Tensor cores load 16 bytes of channels at once, so an image with three channels is left to the fp32 pipes in TF32, and
padded to eight channels in half precision. Their kernels read tensors with channels as the last dimension. So the
images of a window of more than one pixel are transposed before and after, and those that a stride thins out once. A
window of one pixel is a matrix product as it is, whose loads are narrow where the number of positions is odd (7 x 7
images). It has few rows where images are of one pixel, and its blocks then have fewer rows as well: on the A30, the
convolutions of squeeze and excitation take 0.4 times as long as whole blocks would (523 us counted and 205 measured in
fp32, 112 and at most 53 in TF32). Shares, start-up steps and passes were chosen on 137 convolutions in TF32 in
inference on the A30, whose times scatter around the result by a factor of 1.3 (1.7 around the roofline); in training it
is 1.25 (1.6).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES
from ...operations.operation_list import OperationList
from .norms import overlapped
from .operation_numbers import numbers_of
from .roofline import fp32_flops, on_tensor_cores, peak_flops, reached_bandwidth
from .tiling import Tile, padded, tile_count

CONVOLUTION_NAMES: tuple[str, ...] = (
    "log_least_way",
    "log_least_way_back",
    "log_fused_over_implicit",
    "log_separate_over_implicit",
    "log_fourier_over_implicit",
    "position_alignment",
)
"""Names of the features of `Convolutions.features`."""

# Rows of the arrays below are algorithms: implicit with two block sizes, fused, separate and fourier on fp32 pipes, and
# last the one on tensor cores. Algorithms whose transforms and products are kernels one after the other are "in turn".
_IMPLICIT, _FUSED, _TENSOR = 0, 2, 5
_IN_TURN = np.array([[False], [False], [False], [True], [True], [False]])
_WIDE, _NARROW, _PRODUCT_TILE, _FOURIER_TILE = Tile(128, 64), Tile(128, 32), Tile(128, 128), Tile(64, 64)
_IMPLICIT_SHARE, _FUSED_SHARE, _PRODUCT_SHARE, _TENSOR_SHARE = 0.75, 0.5, 0.85, 0.75
_ONE_PIXEL_SHARE, _ODD_POSITIONS = 0.6, 1.6
_NARROW_SHARE = 0.7 * _IMPLICIT_SHARE
_LEAST_ROWS = 32
_FUSED_SQUARES, _FUSED_CHANNELS, _FUSED_MULTIPLICATIONS = (4, 8), 32, 16
_SEPARATE_MULTIPLICATIONS, _SEPARATE_IMAGES, _SEPARATE_SIDE = 36, 16, 4
_FOURIER_SIZES = (16, 32)
_COMPLEX = 4.0  # Real multiplications in one complex multiplication; the same factor for FLOPs.
_CONVOLUTION_START_STEPS = 8  # Starting a block takes as long as this many steps of its reduction.
# On fp32 pipes, a block that is alone on a multiprocessor waits for memory as long as a second block would compute.
_LEAST_WAVES = np.array([[2], [2], [2], [2], [2], [1]])
TRANSPOSED, _THINNED = 4, 2
"""Passes over images that are transposed before and after, and over those that a stride thins out."""
_TENSOR_START_STEPS = 64
_LOADED_BYTES = 16  # What tensor cores load at once: channels of one pixel.
_TRAINING_PASSES = 3.0  # Forward, gradient of the input, and gradient of the weights: products of the same size.
_MOST_LOG = 2.0  # Log ratios are clipped to this; beyond it, an algorithm is not used or does not exist.
_ALIGNMENTS = (2, 4, 8)


class ConvolutionWork(NamedTuple):
    """Work of convolutions, as arrays of shape (convolutions,).

    Args:
        flops: FLOPs that the GPU could compute at its peak during their compute time.
        compute_s: Seconds of computing at the boost clock.
        bytes: Bytes to and from device memory.
        in_turn: True if transforms and products are separate kernels, of which one waits for the other.
    """

    flops: FloatArray
    compute_s: FloatArray
    bytes: FloatArray
    in_turn: NDArray[np.bool_]


class Blocks(NamedTuple):
    """One pass of convolutions with every algorithm, as arrays of shape (algorithms, convolutions).

    Args:
        number: Number of blocks; infinite where the algorithm does not apply.
        flops: FLOPs that a multiprocessor could compute at its peak during one block.
        bytes: Bytes to and from device memory in the whole pass.
    """

    number: FloatArray
    flops: FloatArray
    bytes: FloatArray

    def flops_on(self, gpu: GPU) -> FloatArray:
        """FLOPs that a GPU could compute at its peak during the whole waves; shape as that of `times_s`."""
        sms = _over_algorithms(gpu.sms)
        flops: FloatArray = np.maximum(np.ceil(self.number / sms), _LEAST_WAVES) * (sms * self.flops)
        return flops

    def times_s(self, gpu: GPU, peak_flops: FloatArray | float) -> FloatArray:
        """Seconds of each algorithm, shape (algorithms, convolutions); of several GPUs (gpus, algorithms, ...)."""
        compute_s = self.flops_on(gpu)
        compute_s[..., :_TENSOR, :] /= _over_algorithms(fp32_flops(gpu))
        compute_s[..., _TENSOR, :] /= peak_flops
        memory_s = self.bytes / _over_algorithms(reached_bandwidth(gpu))
        times_s: FloatArray = np.where(_IN_TURN, compute_s + memory_s, overlapped(compute_s, memory_s))
        return times_s


def _over_algorithms(figure: Any) -> FloatArray:
    """A figure of a GPU, or the column of several, in a shape that broadcasts over algorithms and convolutions."""
    return np.asarray(figure)[..., None]


def _of_taken(values: FloatArray, taken: NDArray[np.int_]) -> FloatArray:
    """Of values of all algorithms those of the algorithm that each convolution takes, in the shape of `taken`."""
    wide = np.broadcast_to(values, (*taken.shape[:-1], *values.shape[-2:]))
    found: FloatArray = np.take_along_axis(wide, taken[..., None, :], axis=-2)[..., 0, :]
    return found


def _blocks(n: Any, channels_in: Any, channels_out: Any, rows: Any, reduction: Any) -> Blocks:
    """The blocks of one matrix product of convolutions: their forward pass, or the gradient of their input."""
    images = n.element_bytes * (n.input_size + n.output_size)
    moved = n.element_bytes * (n.input_size + n.output_size + n.parameters)
    steps, channels = reduction + _CONVOLUTION_START_STEPS, channels_in + _CONVOLUTION_START_STEPS
    # Implicit.
    one_pixel = _window(n) == 1
    fewer = np.where(one_pixel, np.clip(2.0 ** np.ceil(np.log2(rows)), _LEAST_ROWS, _WIDE.rows) / _WIDE.rows, 1.0)
    wide_tiles, narrow_tiles = (tile_count(rows, channels_out, tile) for tile in (_WIDE, _NARROW))
    # Fused: images are computed in whole blocks of squares.
    is_three = (n.transforms > 0) & (n.kernel == 3)
    high, wide = _FUSED_SQUARES
    fused = n.first_size * np.ceil(n.height / (2 * high)) * np.ceil(n.width / (2 * wide))
    fused = np.where(is_three, fused * np.ceil(channels_out / _FUSED_CHANNELS), np.inf)
    of_fused = 2.0 * _FUSED_MULTIPLICATIONS * high * wide * _FUSED_CHANNELS
    # Separate.
    by_sixteens = np.ceil(n.first_size / _SEPARATE_IMAGES) * _SEPARATE_IMAGES
    squares = by_sixteens * np.ceil(n.height / _SEPARATE_SIDE) * np.ceil(n.width / _SEPARATE_SIDE)
    separate = _SEPARATE_MULTIPLICATIONS * tile_count(squares, channels_out, _PRODUCT_TILE)
    # Fourier: real data needs only half of the frequencies, because the other half is its complex conjugate.
    needed = np.maximum(n.height, n.width) + n.kernel - 1
    size = np.where(needed > _FOURIER_SIZES[0], _FOURIER_SIZES[1], _FOURIER_SIZES[0])
    frequencies = size * (size // 2 + 1)
    fourier = frequencies * tile_count(n.first_size, channels_out, _FOURIER_TILE)
    fits = (n.transforms > 0) & (needed <= _FOURIER_SIZES[1])

    def transformed(squares: Any) -> Any:
        """Elements of transformed inputs, outputs and weights together, for each element of a transformed square."""
        return squares * (channels_in + channels_out) + channels_in * channels_out

    # Tensor cores.
    narrow_loads = np.where(n.positions % 2 == 1, _ODD_POSITIONS, 1.0)
    share = np.where(one_pixel, _ONE_PIXEL_SHARE / narrow_loads, _TENSOR_SHARE)
    loaded = reduction * padded(channels_in, _LOADED_BYTES / n.element_bytes) / channels_in
    passes = np.where(one_pixel, np.where(n.stride > 1, _THINNED, 1), TRANSPOSED)
    algorithms = [
        (wide_tiles, fewer * _WIDE.flops_per_step * steps / _IMPLICIT_SHARE, moved),
        (narrow_tiles, fewer * _NARROW.flops_per_step * steps / _NARROW_SHARE, moved),
        (fused, of_fused * channels / _FUSED_SHARE, moved),
        (
            np.where(is_three, separate, np.inf),
            _PRODUCT_TILE.flops_per_step * channels / _PRODUCT_SHARE,
            moved + 2 * n.element_bytes * _SEPARATE_MULTIPLICATIONS * transformed(squares),
        ),
        (
            np.where(fits, fourier, np.inf),
            _COMPLEX * _FOURIER_TILE.flops_per_step * channels / _PRODUCT_SHARE,
            moved + _COMPLEX * n.element_bytes * frequencies * transformed(n.first_size),
        ),
        (
            wide_tiles,
            fewer * _WIDE.flops_per_step * (loaded + _TENSOR_START_STEPS) / share,
            moved + (passes - 1) * images,
        ),
    ]
    return Blocks(*np.array(algorithms).transpose(1, 0, 2))


def transposed_bytes(n: Any, gpu: GPU) -> FloatArray:
    """Bytes that transposes move in the training of grouped convolutions; 0 for others, shape (operations,).

    Those of dense ones are in their blocks. In inference, timm's published times of networks with groups show none:
    they are predicted 3 % too quick without, and 6 % too slow with them; in training 20 and 13 % too quick (held back
    20 and 8 %).
    """
    is_grouped = (n.is_convolution > 0) & (n.groups > 1) & (n.groups < n.channels_in)
    passes = np.where(n.is_training > 0, _TRAINING_PASSES, 0.0) * (TRANSPOSED - 1)
    moved = passes * n.element_bytes * (n.input_size + n.output_size)
    found: FloatArray = np.where(is_grouped & on_tensor_cores(n, gpu) & (n.kernel > 1), moved, 0.0)
    return found


def _window(n: Any) -> Any:
    return n.reduction / n.channels_in


class Convolutions(NamedTuple):
    """The dense convolutions of a list of operations, those without groups; arrays have the shape (convolutions,).

    Args:
        operations: Number of all operations in the list.
        places: Index of each dense convolution in the list.
        forward, backward: Blocks of the forward pass, and of the gradient of the input.
        own_flops: FLOPs of each forward pass.
        passes: Number of passes with about the same work: 1 in inference, 3 in training.
        precision: Index of each precision in PRECISIONS.
        element_bytes: Bytes of one element of each convolution's tensors.
        loads: True if tensor cores can load the channels, in half precision padded by cuDNN.
        alignment: How many of 2, 4 and 8 divide the number of positions of an image, 0 to 3.
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
        """The dense convolutions among operations."""
        places = np.flatnonzero((n.is_convolution > 0) & (n.groups == 1))
        mine = type(n)(*(values[places] for values in n))
        positions = mine.input_size / (mine.first_size * mine.channels_in)
        # With a stride above one, each position of the input meets only a part of the window.
        met = mine.channels_out * _window(mine) / (mine.stride * mine.stride)
        return cls(
            operations=len(n.rows),
            places=places,
            forward=_blocks(mine, mine.channels_in, mine.channels_out, mine.rows, mine.reduction),
            backward=_blocks(mine, mine.channels_out, mine.channels_in, mine.first_size * positions, met),
            own_flops=2.0 * mine.rows * mine.columns * mine.reduction,
            passes=np.where(mine.is_training > 0, _TRAINING_PASSES, 1.0),
            precision=mine.precision,
            element_bytes=mine.element_bytes,
            loads=(mine.element_bytes == HALF_BYTES)
            | (
                (mine.channels_in * mine.element_bytes % _LOADED_BYTES == 0)
                & (mine.channels_out * mine.element_bytes % _LOADED_BYTES == 0)
            ),
            alignment=np.sum([positions % alignment == 0 for alignment in _ALIGNMENTS], axis=0) * 1.0,
        )

    def _taken(self, times_s: FloatArray, gpu: GPU) -> NDArray[np.int_]:
        """Index of each convolution's algorithm: tensor cores if they can load it, else the quickest on fp32 pipes."""
        tensor = self.loads & on_tensor_cores(self, gpu)
        taken: NDArray[np.int_] = np.where(tensor, _TENSOR, np.argmin(times_s[..., :_TENSOR, :], axis=-2))
        return taken

    def least(self, gpu: GPU) -> ConvolutionWork:
        """The work of the algorithm that is taken, in all passes of the mode."""
        peak = peak_flops(self.precision, gpu)
        taken = self._taken(self.forward.times_s(gpu, peak), gpu)
        peak = np.where(taken == _TENSOR, peak, fp32_flops(gpu))
        flops, moved = (
            _of_taken(values, taken) * self.passes for values in (self.forward.flops_on(gpu), self.forward.bytes)
        )
        return ConvolutionWork(flops, flops / peak, moved, _IN_TURN[taken, 0])

    def features(self, gpu: GPU) -> FloatArray:
        """Features from the times of the algorithms; 0 for operations other than dense convolutions.

        Returns:
            Shape (len(CONVOLUTION_NAMES), operations). All but the last are logarithms: the least time over that of the
            FLOPs alone, for the forward pass and for the gradient of the input; the times of fused, separate and
            fourier over that of implicit; and the alignment.
        """
        peak = peak_flops(self.precision, gpu)
        forward_s, backward_s = (blocks.times_s(gpu, peak) for blocks in (self.forward, self.backward))
        own_s, taken = self.own_flops / peak, self._taken(forward_s, gpu)
        ratio = forward_s[..., _FUSED:_TENSOR, :] / np.min(forward_s[..., _IMPLICIT:_FUSED, :], axis=-2, keepdims=True)
        ratio = np.where((taken == _TENSOR)[..., None, :], np.inf, ratio)
        found = (
            np.log(_of_taken(forward_s, taken) / own_s),
            np.log(_of_taken(backward_s, self._taken(backward_s, gpu)) / own_s),
            *np.moveaxis(np.clip(np.log(ratio), -_MOST_LOG, _MOST_LOG), -2, 0),
            self.alignment,
        )
        columns = np.zeros((len(found), *taken.shape[:-1], self.operations))
        for column, values in zip(columns, found, strict=True):
            column[..., self.places] = values
        return columns


def dense_convolutions(operations: OperationList) -> Convolutions:
    """The convolutions of a list that are not grouped; use with `OperationList.derived`."""
    return Convolutions.of(numbers_of(operations))
