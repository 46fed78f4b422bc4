"""The time of matrix products on tensor cores: whole waves of tiles, split reductions, and weights in the L2 or not.

A library chooses the tile, and the number of parts into which it splits the reduction, so that the time is least. A
multiprocessor computes one tile at a time. It waits either for its tensor cores or for the data that the tile loads.
With any choice of tiles, every byte passes the memory once. Overheads are counted in clock cycles, because instructions
and caches have latencies of a fixed number of cycles.

A long product draws more power than the board may, so the clock falls until it draws the cap. Products over 1e12 FLOPs
reach 0.80 of the peak on an A100, 0.70 on H100 and H200, 0.61 on a B200, 0.55 on a GB200 and 0.50 on an L40S. The cap
divided by that rate is 1.6, 1.0, 0.74, 0.87 and 1.9 picojoules per FLOP. The larger the products that one
multiprocessor computes in a clock cycle, the fewer operands it loads for each FLOP: these energies follow the inverse
square root of its FLOPs per cycle (1012 on an L40S, 8191 on a B200) within 15 %. The bytes that it loads from the L2
cache in a cycle grow with the square root of the same number (measured: 6 on an L40S, at least 14, 17 and 32 on A100,
H100 and B200).

The constants are fitted to the measurements of each generation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ..physics.norms import p_norm
from .family import Constant

TILES = np.array(
    [
        (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (256, 64),
        (64, 32), (32, 64), (16, 64), (16, 128), (64, 16), (128, 16), (128, 32), (32, 128),
    ],
    dtype=float,
)  # fmt: skip
"""Rows and columns of the tiles that libraries choose from, shape (tiles, 2), the largest first."""

_SPLITS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
_LEAST_REDUCTION = 64.0  # Least number of steps in a part of a split reduction.
_FEWEST_STEPS = 32.0  # A shorter reduction takes as long as this many steps.
_PARTIAL_BYTES = 8.0  # A partial sum in fp32 is written once and read once.
_CACHE_STEEPNESS = 4  # How sharply the share of hits falls where the working set outgrows the L2.
_REFERENCE_RATE = 1024.0  # FLOPs per cycle of the multiprocessor for which constants of energy and L2 are stated.

# CUDA C++ Programming Guide, throughput of native instructions: the same on all GPUs since Volta. Only Blackwell Ultra
# has twice as many units (NVIDIA, "Making Softmax More Efficient with NVIDIA Blackwell Ultra").
_EXPONENTIALS = 16.0
_MORE_EXPONENTIALS = {"10.3": 32.0}

ENERGY = "picojoules_per_flop"
"""Name of the constant that decides how the power cap slows a family down: see `capped_s`."""

CONSTANTS: tuple[Constant, ...] = (
    # Kernels that quantize the rows are launched, too.
    Constant("launch_cycles", 3000.0, 500.0, 30000.0),
    Constant("tile_cycles", 800.0, 50.0, 5000.0),
    # FLOPs that tensor cores compute at their full rate while one byte is loaded for them.
    Constant("flops_per_loaded_byte", 55.0, 20.0, 400.0),
    Constant("split_cycles", 600.0, 50.0, 8000.0),
    Constant("share_of_peak", 0.85, 0.2, 1.1),
    Constant("share_of_bandwidth", 0.9, 0.4, 1.0),
    Constant("overlap_exponent", 3.0, 1.2, 8.0),
    Constant("l2_bytes_per_sm_cycle", 6.0, 2.0, 200.0),
    # Measuring loops use several copies of the weights in turn, as the layers of a network each have their own. So the
    # L2 cache must hold several times the weights of one operation, but its rows and results once.
    Constant("working_sets", 5.0, 1.0, 12.0),
    Constant(ENERGY, 2.0, 0.5, 4.0),
    # Loops of products this long end half way between the default clock and the one that the cap allows.
    Constant("burst_s", 5e-4, 5e-5, 5e-3),
)
"""The constants of `product_s`, in the order in which it takes them."""


@dataclass(frozen=True)
class Products:
    """Matrix products, each [rows, reduction] x [reduction, columns].

    Args:
        rows, columns, reduction: Sizes of each product, shape (products,).
        input_bytes: Bytes of an element of either factor.
        output_bytes: Bytes of an element of the result.
        batch: Number of products of these sizes that are computed at once: one for all, or shape (products,).
        moved_bytes: Bytes to and from memory, shape (products,); None for both factors and the result, each once.
        passed_bytes: Bytes that point-wise kernels before and after the product read and write, shape (products,).
    """

    rows: FloatArray
    columns: FloatArray
    reduction: FloatArray
    input_bytes: float = 2.0
    output_bytes: float = 2.0
    batch: FloatArray | float = 1.0
    moved_bytes: FloatArray | None = None
    passed_bytes: FloatArray | float = 0.0

    @property
    def flops(self) -> FloatArray:
        """FLOPs of each product; a multiply-add is two."""
        return 2.0 * self.batch * self.rows * self.columns * self.reduction

    @property
    def bytes(self) -> FloatArray:
        """Bytes to and from memory of each product."""
        if self.moved_bytes is not None:
            return self.moved_bytes
        factors = self.reduction * (self.rows + self.columns) * self.input_bytes
        return self.batch * (factors + self.rows * self.columns * self.output_bytes)

    @property
    def weight_bytes(self) -> FloatArray:
        """Bytes of the second factor; all bytes if `moved_bytes` does not tell which."""
        if self.moved_bytes is not None:
            return self.moved_bytes
        return self.batch * self.reduction * self.columns * self.input_bytes


@dataclass(frozen=True)
class Machine:
    """The figures of a GPU that decide how long a product takes.

    Args:
        sms: Number of multiprocessors.
        clock_hz: The clock for which the data sheet states the rate of tensor cores, in Hz.
        flops_per_cycle: FLOPs per clock cycle of one multiprocessor, by the data sheet; shape (products,) if kernels
            differ in the instructions that they use.
        bandwidth: Bytes per second of the memory, by the data sheet.
        l2_bytes: Size of the L2 cache in bytes.
        exponentials: Exponentials per clock cycle of one multiprocessor.
        power_limit_w: Default power cap of the board in watts.
    """

    sms: int
    clock_hz: float
    flops_per_cycle: FloatArray | float
    bandwidth: float
    l2_bytes: float
    exponentials: float = _EXPONENTIALS
    power_limit_w: float = np.inf

    @classmethod
    def of(cls, gpu: GPU, precision: str) -> Machine:
        """The figures of a GPU that multiplies in a precision that it supports."""
        clock_hz = (gpu.tensor_clock_mhz or gpu.boost_clock_mhz) * 1e6
        rate = gpu.peak_flops[precision] / gpu.sms / clock_hz
        exponentials = _MORE_EXPONENTIALS.get(gpu.compute_capability, _EXPONENTIALS)
        return cls(gpu.sms, clock_hz, rate, gpu.memory_bandwidth, gpu.l2_bytes, exponentials, gpu.power_limit_w)

    @property
    def reuse(self) -> FloatArray | float:
        """FLOPs for each operand that a multiprocessor loads, over those of one with the reference rate."""
        found: FloatArray | float = np.sqrt(self.flops_per_cycle / _REFERENCE_RATE)
        return found


def product_s(products: Products, machine: Machine, constants: FloatArray) -> FloatArray:
    """Device seconds of products, each run by itself.

    Args:
        products: Sizes of the products.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONSTANTS, shape (constants,) or (constants, products).

    Returns:
        Shape (products,).
    """
    launch, tile, per_byte, split, peak, bandwidth, exponent, l2_bytes, sets, picojoules, burst_s = constants
    l2_rate = l2_bytes * machine.reuse * machine.sms  # In bytes per cycle.
    least = _least_cycles(products, machine, np.array([tile, per_byte, split, peak]), l2_rate)
    compute_s = capped_s(least / machine.clock_hz, products.flops, machine, picojoules, burst_s)
    weights, moved, passed = products.weight_bytes, products.bytes, products.passed_bytes
    rates = machine.bandwidth * bandwidth, l2_rate * machine.clock_hz
    moved_s = _moving_s(moved, sets * weights + moved - weights, machine, *rates)
    passed_s = _moving_s(passed, sets * weights + passed, machine, *rates)
    seconds: FloatArray = p_norm(compute_s, moved_s, exponent) + passed_s + launch / machine.clock_hz
    return seconds


def _moving_s(
    moved: FloatArray | float,
    held: FloatArray,
    machine: Machine,
    memory_rate: FloatArray | float,
    l2_rate: FloatArray | float,
) -> FloatArray:
    """Seconds to move bytes through the L2 cache, if it holds what a loop uses, or through the memory.

    Args:
        moved: Bytes that are moved, shape (products,) or for all.
        held: Bytes that the loop uses until these bytes are moved again, shape (products,).
        machine: The GPU that they run on, as numbers.
        memory_rate: Bytes per second that the memory delivers.
        l2_rate: Bytes per second that the L2 cache delivers.
    """
    cached = 1 / (1 + (held / machine.l2_bytes) ** _CACHE_STEEPNESS)
    seconds: FloatArray = moved * (1 - cached) / memory_rate + moved * cached / l2_rate
    return seconds


def _least_cycles(
    products: Products, machine: Machine, constants: FloatArray, l2_rate: FloatArray | float
) -> FloatArray:
    """Clock cycles of the quickest choice of tiles and splits, shape (products,).

    Args:
        products: Sizes of the products.
        machine: The GPU that they run on, as numbers.
        constants: Cycles of a tile, FLOPs per loaded byte, cycles of a split, and the share of the peak.
        l2_rate: Bytes per cycle that the L2 cache delivers.
    """
    tile, per_byte, split, peak = constants
    rate = machine.flops_per_cycle * peak
    rows, columns = TILES[:, 0, None, None], TILES[:, 1, None, None]
    splits = _SPLITS[:, None]
    steps = np.maximum(products.reduction / splits, _FEWEST_STEPS)
    parts = np.ceil(products.rows / rows) * np.ceil(products.columns / columns) * splits * products.batch
    loads = (rows + columns) * products.input_bytes * steps * per_byte / machine.flops_per_cycle
    each = np.maximum(2.0 * rows * columns * steps / rate, loads) + tile
    sums = split + parts * rows * columns * _PARTIAL_BYTES / l2_rate
    cycles = np.ceil(parts / machine.sms) * each + np.where(splits > 1, sums, 0.0)
    allowed = (splits == 1) | (products.reduction / splits >= _LEAST_REDUCTION)
    least: FloatArray = np.where(allowed, cycles, np.inf).min(axis=(0, 1))
    return least


def capped_s(
    compute_s: FloatArray,
    flops: FloatArray,
    machine: Machine,
    picojoules: FloatArray | float,
    burst_s: FloatArray | float,
) -> FloatArray:
    """Seconds of products in a loop whose clock falls until the board draws its cap, shape (products,).

    Args:
        compute_s: Their seconds at the default clock.
        flops: Their FLOPs.
        machine: The GPU that they run on, as numbers.
        picojoules: Energy of a FLOP on a multiprocessor with the reference rate, in picojoules.
        burst_s: Length at which the loop of measurements ends half way between both clocks, in seconds.
    """
    energy_j = flops * picojoules * 1e-12 / machine.reuse
    slower = np.maximum(energy_j / machine.power_limit_w / compute_s, 1.0)
    capped: FloatArray = compute_s * (1 + (slower - 1) * compute_s / (compute_s + burst_s))
    return capped
