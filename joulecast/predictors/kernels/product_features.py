"""Features of matrix products for trees: their sizes relative to the GPU, and how they fill its multiprocessors."""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from .products import TILES, Machine, Products

# Tiles whose padding in the last wave is a feature of trees; smaller tiles add little information.
_LARGE = TILES[:8]
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
    *(f"log_waves_{int(a)}x{int(b)}" for a, b in TILES),
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
    waves = np.ceil(rows / TILES[:, :1]) * np.ceil(columns / TILES[:, 1:]) * products.batch / machine.sms
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
