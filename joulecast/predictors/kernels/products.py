"""Matrix products on tensor cores: tiles in whole waves, split reductions, and weights that fit into the L2 or do not.

A library picks the tile, and the number of parts that it splits the reduction into, which take the least time. A
multiprocessor computes one tile at a time: it either waits for its tensor cores or for what the tile loads. Whatever
the tiles are, every byte passes the memory once. Overheads are counted in clock cycles, because that is what waiting
for an instruction or a cache takes.

The few constants are fitted to each generation's measurements. With them alone, without any trees, bf16 layers of
sizes that were not fitted are off by 8 % (H100) to 17 % (L40S) in the mean; one in eight pairs of outputs and inputs
was left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from .family import Constant

_TILES = np.array(
    [
        (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (256, 64),
        (64, 32), (32, 64), (16, 64), (16, 128), (64, 16), (128, 16), (128, 32), (32, 128),
    ],
    dtype=float,
)  # fmt: skip
_SPLITS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
_LEAST_REDUCTION = 64.0  # A part of a split reduction has at least so many steps.
_FEWEST_STEPS = 32.0
_PARTIAL_BYTES = 8.0  # A partial sum in fp32 is written once and read once.
_CACHE_STEEPNESS = 4  # How sharply the share of hits falls where the working set outgrows the L2.
# Of the waves and fills that trees look at; smaller tiles say little that these do not.
_LARGE = _TILES[:8]

CONSTANTS: tuple[Constant, ...] = (
    Constant("launch_cycles", 3000.0, 500.0, 8000.0),
    Constant("tile_cycles", 800.0, 50.0, 5000.0),
    # FLOPs that tensor cores do while a byte is loaded for them, at their full rate.
    Constant("flops_per_loaded_byte", 55.0, 20.0, 400.0),
    Constant("split_cycles", 600.0, 50.0, 8000.0),
    Constant("share_of_peak", 0.85, 0.2, 1.1),
    Constant("share_of_bandwidth", 0.9, 0.4, 1.0),
    Constant("overlap_exponent", 3.0, 1.2, 8.0),
    Constant("l2_bytes_per_sm_cycle", 40.0, 8.0, 200.0),
    # Measuring loops go through several copies of the weights; so do the layers of a network.
    Constant("working_sets", 5.0, 2.0, 12.0),
)
"""What `product_s` needs, in its order."""


@dataclass(frozen=True)
class Products:
    """Matrix products, each [rows, reduction] x [reduction, columns].

    Args:
        rows, columns, reduction: Shape (products,).
        input_bytes: Of an element of either factor.
        output_bytes: Of an element of the result.
        batch: Products of these sizes that are computed at once.
        moved_bytes: What passes the memory, where that is not both factors and the result; shape (products,).
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
        """A multiply-add is two."""
        return 2.0 * self.batch * self.rows * self.columns * self.reduction

    @property
    def bytes(self) -> FloatArray:
        """What passes the memory once."""
        if self.moved_bytes is not None:
            return self.moved_bytes
        factors = self.reduction * (self.rows + self.columns) * self.input_bytes
        return self.batch * (factors + self.rows * self.columns * self.output_bytes)


@dataclass(frozen=True)
class Machine:
    """What a product meets on a GPU.

    Args:
        sms: Multiprocessors.
        clock_hz: The clock that the rate of tensor cores holds at.
        flops_per_cycle: Of one multiprocessor, by the data sheet.
        bandwidth: Bytes per second of the memory.
        l2_bytes: Size of the L2.
    """

    sms: int
    clock_hz: float
    flops_per_cycle: float
    bandwidth: float
    l2_bytes: float

    @classmethod
    def of(cls, gpu: GPU, precision: str) -> Machine:
        """A GPU, multiplying in a precision that it has."""
        clock_hz = (gpu.tensor_clock_mhz or gpu.boost_clock_mhz) * 1e6
        rate = gpu.peak_flops[precision] / gpu.sms / clock_hz
        return cls(gpu.sms, clock_hz, rate, gpu.memory_bandwidth, gpu.l2_bytes)


def product_s(products: Products, machine: Machine, constants: FloatArray) -> FloatArray:
    """Seconds that products take, each by itself.

    Args:
        products: What is multiplied.
        machine: The GPU that they run on, as numbers.
        constants: Values of CONSTANTS.

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
    together = (least**exponent + (from_memory + from_cache) ** exponent) ** (1 / exponent)
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
"""What `product_features` gives, column by column."""


def product_features(products: Products, machine: Machine, physics_s: FloatArray) -> FloatArray:
    """Products as trees see them, relative to the GPU.

    Args:
        products: What is multiplied.
        machine: The GPU that they run on, as numbers.
        physics_s: What `product_s` says of them.

    Returns:
        Shape (products, len(FEATURE_NAMES)).
    """
    rows, columns, reduction = products.rows, products.columns, products.reduction
    compute = products.flops / (machine.flops_per_cycle * machine.sms)
    memory = products.bytes / machine.bandwidth * machine.clock_hz
    cycles = physics_s * machine.clock_hz
    waves = np.ceil(rows / _TILES[:, :1]) * np.ceil(columns / _TILES[:, 1:]) * products.batch / machine.sms
    outputs = products.batch * rows * columns
    filled = np.ceil(waves[: len(_LARGE)]) * machine.sms * _LARGE.prod(axis=1)[:, None] / outputs
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
    found: FloatArray = np.vstack([np.log2(logs), rows % 8 == 0, rows % 2 == 1, np.log2(waves), np.log2(filled)]).T
    return found
