"""The time of matrix products on tensor cores: whole waves of tiles, split reductions, and weights in the L2 or not.

A library chooses the tile, and the number of parts into which it splits the reduction, so that the time is least. A
multiprocessor computes one tile at a time. It waits either for its tensor cores or for the data that the tile loads.
With any choice of tiles, every byte passes the memory once. Overheads are counted in clock cycles, because instructions
and caches have latencies of a fixed number of cycles.

The constants are fitted to the measurements of each generation. With them alone, without trees, the mean error on bf16
layers that were left out of the fit is between 8 % (H100) and 17 % (L40S). One in eight pairs of output and input
features was left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ..physics.norms import p_norm
from .family import Constant

_TILES = np.array(
    [
        (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (256, 64),
        (64, 32), (32, 64), (16, 64), (16, 128), (64, 16), (128, 16), (128, 32), (32, 128),
    ],
    dtype=float,
)  # fmt: skip
_SPLITS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
_LEAST_REDUCTION = 64.0  # Least number of steps in a part of a split reduction.
_FEWEST_STEPS = 32.0  # A shorter reduction takes as long as this many steps.
_PARTIAL_BYTES = 8.0  # A partial sum in fp32 is written once and read once.
_CACHE_STEEPNESS = 4  # How sharply the share of hits falls where the working set outgrows the L2.
# Tiles whose padding in the last wave is a feature of trees; smaller tiles add little information.
_LARGE = _TILES[:8]

# CUDA C++ Programming Guide, throughput of native instructions: the same on all GPUs since Volta. Only Blackwell Ultra
# has twice as many units (NVIDIA, "Making Softmax More Efficient with NVIDIA Blackwell Ultra").
_EXPONENTIALS = 16.0
_MORE_EXPONENTIALS = {"10.3": 32.0}

CONSTANTS: tuple[Constant, ...] = (
    Constant("launch_cycles", 3000.0, 500.0, 8000.0),
    Constant("tile_cycles", 800.0, 50.0, 5000.0),
    # FLOPs that tensor cores compute at their full rate while one byte is loaded for them.
    Constant("flops_per_loaded_byte", 55.0, 20.0, 400.0),
    Constant("split_cycles", 600.0, 50.0, 8000.0),
    Constant("share_of_peak", 0.85, 0.2, 1.1),
    Constant("share_of_bandwidth", 0.9, 0.4, 1.0),
    Constant("overlap_exponent", 3.0, 1.2, 8.0),
    Constant("l2_bytes_per_sm_cycle", 40.0, 8.0, 200.0),
    # Measuring loops use several copies of the weights in turn, as the layers of a network each have their own. So the
    # L2 cache must hold several times the bytes of one operation.
    Constant("working_sets", 5.0, 2.0, 12.0),
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
    """

    rows: FloatArray
    columns: FloatArray
    reduction: FloatArray
    input_bytes: float = 2.0
    output_bytes: float = 2.0
    batch: FloatArray | float = 1.0
    moved_bytes: FloatArray | None = None

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


@dataclass(frozen=True)
class Machine:
    """The figures of a GPU that decide how long a product takes.

    Args:
        sms: Number of multiprocessors.
        clock_hz: The clock for which the data sheet states the rate of tensor cores, in Hz.
        flops_per_cycle: FLOPs per clock cycle of one multiprocessor, by the data sheet.
        bandwidth: Bytes per second of the memory, by the data sheet.
        l2_bytes: Size of the L2 cache in bytes.
        exponentials: Exponentials per clock cycle of one multiprocessor.
    """

    sms: int
    clock_hz: float
    flops_per_cycle: float
    bandwidth: float
    l2_bytes: float
    exponentials: float = _EXPONENTIALS

    @classmethod
    def of(cls, gpu: GPU, precision: str) -> Machine:
        """The figures of a GPU that multiplies in a precision that it supports."""
        clock_hz = (gpu.tensor_clock_mhz or gpu.boost_clock_mhz) * 1e6
        rate = gpu.peak_flops[precision] / gpu.sms / clock_hz
        exponentials = _MORE_EXPONENTIALS.get(gpu.compute_capability, _EXPONENTIALS)
        return cls(gpu.sms, clock_hz, rate, gpu.memory_bandwidth, gpu.l2_bytes, exponentials)


def product_s(products: Products, machine: Machine, constants: FloatArray) -> FloatArray:
    """Device seconds of products, each run by itself.

    Args:
        products: Sizes of the products.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONSTANTS, shape (constants,).

    Returns:
        Shape (products,).
    """
    launch, tile, per_byte, split, peak, bandwidth, exponent, l2_bytes, sets = constants
    rate = machine.flops_per_cycle * peak
    rows, columns = _TILES[:, 0, None, None], _TILES[:, 1, None, None]
    splits = _SPLITS[:, None]
    steps = np.maximum(products.reduction / splits, _FEWEST_STEPS)
    parts = np.ceil(products.rows / rows) * np.ceil(products.columns / columns) * splits * products.batch
    loads = (rows + columns) * products.input_bytes * steps * per_byte / machine.flops_per_cycle
    each = np.maximum(2.0 * rows * columns * steps / rate, loads) + tile
    sums = split + parts * rows * columns * _PARTIAL_BYTES / (l2_bytes * machine.sms)
    cycles = np.ceil(parts / machine.sms) * each + np.where(splits > 1, sums, 0.0)
    allowed = (splits == 1) | (products.reduction / splits >= _LEAST_REDUCTION)
    least = np.where(allowed, cycles, np.inf).min(axis=(0, 1))
    moved = products.bytes
    cached = 1 / (1 + (moved * sets / machine.l2_bytes) ** _CACHE_STEEPNESS)
    from_memory = moved * (1 - cached) / (machine.bandwidth * bandwidth) * machine.clock_hz
    from_cache = moved * cached / (l2_bytes * machine.sms)
    together = p_norm(least, from_memory + from_cache, exponent)
    seconds: FloatArray = (together + launch) / machine.clock_hz
    return seconds


_PADS = (8, 16, 64, 128, 256)
FEATURE_NAMES: tuple[str, ...] = (
    "log_rows",
    "log_columns",
    "log_reduction",
    "log_physics_cycles",
    "log_physics_over_roofline",
    "log_compute_over_memory",
    "log_compute_cycles",
    "log_memory_cycles",
    "log_rows_reduction_over_columns",
    "log_outputs",
    "log_weights_over_l2",
    "log_bytes_over_l2",
    "log_outputs_over_l2",
    *(f"log_row_padding_{pad}" for pad in _PADS),
    "rows_in_eights",
    "odd_rows",
    *(f"log_waves_{int(a)}x{int(b)}" for a, b in _TILES),
    *(f"log_wave_padding_{int(a)}x{int(b)}" for a, b in _LARGE),
)
"""Names of the columns of `product_features`."""


def product_features(products: Products, machine: Machine, physics_s: FloatArray) -> FloatArray:
    """Features of products for trees, relative to the GPU.

    Args:
        products: Sizes of the products.
        machine: The GPU that they run on, as numbers.
        physics_s: Their seconds by `product_s`, shape (products,).

    Returns:
        Shape (products, len(FEATURE_NAMES)).
    """
    rows, columns, reduction = products.rows, products.columns, products.reduction
    compute = products.flops / (machine.flops_per_cycle * machine.sms)
    memory = products.bytes / machine.bandwidth * machine.clock_hz
    cycles = physics_s * machine.clock_hz
    waves = np.ceil(rows / _TILES[:, :1]) * np.ceil(columns / _TILES[:, 1:]) * products.batch / machine.sms
    outputs = products.batch * rows * columns
    padding = np.ceil(waves[: len(_LARGE)]) * machine.sms * _LARGE.prod(axis=1)[:, None] / outputs
    logs = [
        rows,
        columns,
        reduction,
        cycles,
        cycles / np.cbrt(compute**3 + memory**3),
        compute / memory,
        compute,
        memory,
        rows * reduction / columns,
        rows * columns,
        columns * reduction * products.input_bytes / machine.l2_bytes,
        products.bytes / machine.l2_bytes,
        rows * columns * products.output_bytes / machine.l2_bytes,
        *(np.ceil(rows / pad) * pad / rows for pad in _PADS),
    ]
    found: FloatArray = np.vstack([np.log2(logs), rows % 8 == 0, rows % 2 == 1, np.log2(waves), np.log2(padding)]).T
    return found
