"""What a data sheet allows: the roofline, the rates that kernels really reach of it, and what no operation can beat.

An operation takes at least its FLOPs over the peak rate, and at least its bytes over the memory bandwidth (the roofline
of Williams, Waterman and Patterson, CACM 2009). The data sheet counts every transfer of the memory bus. Refreshing
rows, opening pages and turning the bus between reads and writes take a part of it, and so does error correction where
the memory stores its own check bits.

Predictions that are learned from measurements have errors. They must not be lower than what is certain (`Bounds`):

- A kernel takes at least 1.5 to 2 us from its launch to its end, whatever it does.
- It moves its bytes no faster than the memory's bandwidth. (Caches do not help: of 200,000 measured operations of
  NeuSight and Nicolai none moved its bytes more than 9 % faster, not even those that fit into the last cache. Ada, with
  caches of up to 96 MB beside GDDR6, is another matter.)
- It computes its FLOPs no faster than the peak at its clock, but for convolutions whose transforms save
  multiplications.

A bound is a maximum of quantities that grow with the work. Raising a time to it keeps the law that more work never
takes less time.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError
from ...hardware import GPU, each_of, full_rates, per_gpu
from ...operations.attributes import PRECISIONS
from ...operations.operation import Operation
from .operation_numbers import numbers_of

# Share of the data sheet's bandwidth that copies reach, quoted from published results without looking them up again:
# BabelStream (Deakin et al.) on P100 0.75, V100 0.92, A100 0.90; T4 0.69 to 0.75, whose memory stores its own error
# correction (Jia et al., arXiv 1903.07486); GeForce boards, without error correction, 0.9; MI200 and MI300 about 0.85.
# NeuSight's element-wise operations agree within 3 %. The shares were chosen with these in view, so NeuSight's GPUs are
# no independent test of them.
_REACHED_HBM, _REACHED_FIRST_HBM, _REACHED_GDDR, _REACHED_CORRECTED_GDDR, _REACHED_AMD = 0.91, 0.76, 0.9, 0.76, 0.85
# Share of their highest clock that boards for desks (GeForce and RTX, with GDDR memory without error correction) choose
# under load, where that is above their boost clock. Linear layers on an RTX 4090 reach 0.99 of the peak at the boost
# clock, where physics expects 0.9 (llmservingsim2026); timm's networks on RTX 3090, 4090 and 5090 fit best with the
# same share (benchmarks/public/notes.md).
_CHOSEN_CLOCK = 0.9
READ_SHARE = 0.9
"""Share of the bandwidth that reading weights and caches of keys reaches at most where the L2 cache cannot hold them.

Of 18,000 products of few rows and steps of decoding with over twice the cache, 99 % stay below 0.90 on an L40S and 0.87
on an A100 (aiconfigurator2026)."""

PRODUCTS_SHARE = 0.6
"""Share of the time of convolutions on tensor cores of full rate that is products and loads.

On an A10, whose networks in bf16 were measured, they take 1.6 to 1.9 times their least time."""


# Compute capability -> seconds of the shortest kernels. A100: the shortest layers of language models (vidur2024, 0.1 %
# quantile; linear layers 2.8 us). L40S, B200 and GB200: linear layers (aiconfigurator2026, shortest). H100: between the
# shortest layer, 1 us (vidur2024, in whole microseconds), and the shortest linear layer, 2.5 us.
_KERNEL_S = {8.0: 2.0e-6, 8.9: 1.7e-6, 9.0: 1.5e-6, 10.0: 1.6e-6}
_OTHER_KERNEL_S = 2.0e-6  # MI250X: 2.2 us, its shortest convolution (miopen2024).
# Compute capability -> factor on the memory bandwidth for data that fits into the last cache. Decoding on an L40S,
# which has 96 MB of L2, reaches 4.2 times the memory bandwidth, and 6.6 times without the launch (aiconfigurator2026).
_CACHED_FASTER = {8.9: 6.6}
# Size of data over that of the last cache from which the cache does not help. Below, the time of a byte falls with this
# power of the size, so twice the data take 3.7 times as long at most, and with the power that they draw not over four
# times the energy. Of 7,000 linear layers and attentions on an L40S whose data are 0.8 to 2.8 times the cache, 0.4 %
# are quicker (aiconfigurator2026); with a step at its size, 2.1 % were.
_OUTGROWN, _OUTGROWING = 3.0, 0.9
_WINOGRAD_SAVING = 4.0  # F(4 x 4, 3 x 3): 36 multiplications for 16 outputs of 9 each (Lavin and Gray, CVPR 2016).
_FOURIER_SIDE = 32  # Pixels on each side of the largest transforms that cuDNN uses; see convolutions.py.
# Real multiplications of such a transform: four for each complex one. Real data needs only 17 of 32 columns.
_FOURIER_MULTIPLICATIONS = 4.0 * 32 * 17


class Roofline(NamedTuple):
    """The least times that a data sheet allows.

    Args:
        compute_s: Seconds for the FLOPs at the peak rate, shape (operations,).
        memory_s: Seconds for the bytes at the data sheet's bandwidth, shape (operations,).
    """

    compute_s: FloatArray
    memory_s: FloatArray

    @property
    def bounds(self) -> list[Literal["compute", "memory"]]:
        """Which of the two takes longer."""
        return ["compute" if more else "memory" for more in (self.compute_s > self.memory_s).tolist()]


def roofline(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Roofline:
    """Least compute and memory time of each operation on a GPU at a clock.

    Compute scales with the graphics clock, memory does not.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    n, ratio = numbers_of(operations), clock_mhz / gpu.boost_clock_mhz
    compute_s = n.flops / (peak_flops(n.precision, gpu) * ratio)
    return Roofline(compute_s, (n.bytes_read + n.bytes_written) / gpu.memory_bandwidth)


def peak_flops(precision: FloatArray, gpu: GPU) -> FloatArray:
    """Peak FLOPs per second of each operation at the boost clock, in the precision that it really runs in."""
    return of_precisions(precision, gpu, _peak_flops(gpu))


def on_tensor_cores(n: Any, gpu: GPU) -> Any:
    """Whether each operation has a precision whose products run on the GPU's tensor cores (`GPU.on_tensor_cores`).

    Returns:
        One truth value per operation.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    return of_precisions(n.precision, gpu, _on_tensor_cores(gpu)) > 0


@per_gpu
def fp32_flops(gpu: GPU) -> float:
    """Peak FLOPs per second in fp32 at the boost clock."""
    return gpu.peak_flops["fp32"]


@per_gpu
@lru_cache(maxsize=512)
def _peak_flops(gpu: GPU) -> FloatArray:
    return precision_table(gpu, lambda precision: gpu.peak_flops[gpu.running_precision(precision)])


@per_gpu
@lru_cache(maxsize=512)
def _on_tensor_cores(gpu: GPU) -> FloatArray:
    return precision_table(gpu, gpu.on_tensor_cores)


def precision_table(gpu: GPU, value: Callable[[str], float]) -> FloatArray:
    """A value for each of `PRECISIONS`; NaN for those that the GPU does not support. See `of_precisions`."""
    table = np.full(len(PRECISIONS), np.nan)
    for place, precision in enumerate(PRECISIONS):
        with contextlib.suppress(InputError):
            gpu.running_precision(precision)
            table[place] = value(precision)
    return table


def of_precisions(places: FloatArray, gpu: GPU, table: FloatArray) -> FloatArray:
    """A value for each operation that depends on its precision only.

    Args:
        places: Index of each operation's precision in PRECISIONS, shape (operations,).
        gpu: The GPU that they run on.
        table: What `precision_table` made for this GPU; it is cached, because physics look it up a dozen times.

    Returns:
        Shape (operations,).

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    at = places.astype(int)
    found: FloatArray = table[..., at]
    if math.isnan(found.sum()):
        for one, row in zip(each_of(gpu), np.atleast_2d(found), strict=True):
            for place in at[np.isnan(row)][:1].tolist():
                one.running_precision(PRECISIONS[place])  # raises
    return found


@per_gpu
def reached_bandwidth(gpu: GPU) -> float:
    """Bytes per second of device memory that a copy reaches."""
    if not gpu.is_nvidia:
        share = _REACHED_AMD
    elif gpu.has_hbm:
        share = _REACHED_FIRST_HBM if gpu.compute_capability.startswith("6.") else _REACHED_HBM
    else:
        share = _REACHED_CORRECTED_GDDR if gpu.inline_ecc else _REACHED_GDDR
    return share * gpu.memory_bandwidth


@per_gpu
def chosen_clock_mhz(gpu: GPU) -> float:
    """The clock that a board chooses under load, as far as its cap allows: that of its rates, or a higher one."""
    clock_mhz = float(gpu.tensor_clock_mhz or gpu.boost_clock_mhz)
    for_desks = gpu.is_nvidia and not gpu.has_hbm and not gpu.inline_ecc
    return max(clock_mhz, _CHOSEN_CLOCK * gpu.max_clock_mhz) if for_desks else clock_mhz


@per_gpu
def half_at_lower_rate(gpu: GPU) -> float:
    """Time of products in half precision relative to their peak, where tensor cores are sold with a lower rate.

    What kernels lose beside the products takes as many cycles for each FLOP as at the full rate.

    Returns:
        Time of products over that for the same share of the peak as at the full rate; at most 1.
    """
    return PRODUCTS_SHARE + (1 - PRODUCTS_SHARE) * gpu.flops_per_cycle("fp16") / full_rates(gpu)["fp16"]


class Bounds(NamedTuple):
    """Least seconds of operations on a GPU, as arrays of shape (operations,) or one number for all.

    Args:
        compute_s: Seconds for the FLOPs at the boost clock; they are inversely proportional to the clock.
        fixed_s: Seconds for the bytes, or for the shortest kernels if these take longer; the same at any clock.
    """

    compute_s: FloatArray | float
    fixed_s: FloatArray | float

    @classmethod
    def of(cls, operations: Sequence[Operation], gpu: GPU) -> Bounds:
        """The bounds of operations on a GPU.

        Raises:
            InputError: An operation's precision does not exist on the GPU.
        """
        n = numbers_of(operations)
        moved = n.bytes_read + n.bytes_written
        least_share = 1.0 / per_gpu(lambda each: _CACHED_FASTER.get(each.generation, 1.0))(gpu)
        share = np.clip((moved / (_OUTGROWN * gpu.l2_bytes)) ** _OUTGROWING, least_share, 1.0)
        memory_s = moved / gpu.memory_bandwidth * share
        return cls(
            n.flops / _transform_saving(n) / peak_flops(n.precision, gpu),
            np.maximum(memory_s, n.kernels * kernel_floor_s(gpu)),
        )

    def applied(self, device_s: FloatArray, slower: FloatArray | float) -> FloatArray:
        """Device times, raised to the bounds."""
        raised: FloatArray = np.maximum(np.maximum(device_s, self.compute_s * slower), self.fixed_s)
        return raised


@per_gpu
def kernel_floor_s(gpu: GPU) -> float:
    """Seconds of the shortest kernels on a GPU."""
    return _KERNEL_S.get(gpu.generation, _OTHER_KERNEL_S)


def _transform_saving(n: Any) -> Any:
    """The largest factor by which transforms can reduce the multiplications of convolutions; 1 where none applies."""
    outputs = np.maximum(_FOURIER_SIDE + 1 - n.kernel, 1.0)
    fourier = (outputs * n.kernel) ** 2 / _FOURIER_MULTIPLICATIONS
    return np.where(n.transforms > 0, np.maximum(fourier, _WINOGRAD_SAVING), 1.0)
