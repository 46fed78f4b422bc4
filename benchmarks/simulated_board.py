"""A simulated board with known deviations from what is predicted for its GPU, by formulas of its own.

Products and convolutions compute at 0.8 of their rate, the memory has 0.9 of its bandwidth, the waiting board draws
15 W more, and the host needs 1.3 of the time to launch. Seconds and watts have noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from joulecast import Operation
from joulecast.datasets import Card, Dataset, Measurement
from joulecast.hardware import GPU
from joulecast.predictors.physics.energy import static_power_w

SLOW_PRODUCTS, BANDWIDTH, MORE_STATIC_W, LAUNCH = 0.8, 0.9, 15.0, 1.3
"""Rate of products, bandwidth of memory and time of launches relative to the prediction; watts of the waiting board."""
NOISE = 0.02
DAY = "2026-11-23T10:00:00+00:00"


def operations(mode: str = "inference") -> list[Operation]:
    """Products and convolutions that compute, and point-wise operations that move bytes, of many sizes."""
    of_all_sizes = []
    for rows, features in ((256, 1024), (1024, 1024), (2048, 4096), (4096, 1024), (4096, 4096), (8192, 2048)):
        for precision in ("fp32", "bf16"):
            given = {"precision": precision, "mode": mode}
            of_all_sizes += [
                Operation("linear", [(rows, features)], {"out_features": features}, **given),
                Operation("linear", [(rows, features)], {"out_features": 4 * features}, **given),
                Operation("gelu", [(rows, 4 * features)], **given),
                Operation("add", [(rows, features), (rows, features)], **given),
                Operation("layer_norm", [(rows, features)], {"normalized_shape": [features]}, **given),
            ]
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        conv = {"out_channels": channels, "kernel_size": 3, "padding": 1, "bias": False}
        for batch in (32, 128):
            of_all_sizes.append(Operation("conv2d", [(batch, channels, size, size)], conv, precision="fp32", mode=mode))
            of_all_sizes.append(Operation("relu", [(batch, channels, size, size)], mode=mode))
    return of_all_sizes


def measured(predictor, asked: Sequence[Operation], gpu: GPU, seed: int = 0, clock_mhz: float | None = None) -> Dataset:
    """What the board shows of operations: loops, device times, and power by a sensor with noise.

    Args:
        predictor: Predicts what a board without deviations would show.
        asked: The operations.
        gpu: The GPU.
        seed: Seed of the noise.
        clock_mhz: The highest clock of the board; None for the GPU's default.
    """
    draw = np.random.default_rng(seed)
    predicted = predictor.predict(asked, clock_mhz)
    parts, held = predicted.work.parts, predicted.work.clock_mhz / predicted.held_clock_mhz
    product = np.array([each.row.family in ("matmul", "convolution") for each in asked])
    on_clock, memory = held**3 * (parts.compute_s**3 + parts.cache_s**3), parts.memory_s**3
    slowed = on_clock * np.where(product, SLOW_PRODUCTS**-3, 1.0) + memory * BANDWIDTH**-3
    noise = np.exp(NOISE * draw.standard_normal((2, len(asked))))
    device_s = predicted.device_time_s * np.cbrt(slowed / (on_clock + memory)) * noise[0]
    loop_s = (device_s**4 + (LAUNCH * predicted.host_time_s) ** 4) ** 0.25
    static_w = np.array([static_power_w(gpu, mhz) for mhz in predicted.held_clock_mhz.tolist()])
    power_w = static_w + MORE_STATIC_W + predicted.dynamic_energy_j / loop_s
    power_w = np.minimum(power_w * noise[1], gpu.power_limit_w)
    rows = [
        Measurement(operation, t, w, t * w, device_time_s=d, clock_mhz=clock_mhz, started=DAY, method="simulated")
        for operation, t, w, d in zip(asked, loop_s.tolist(), power_w.tolist(), device_s.tolist(), strict=True)
    ]
    card = Card(gpu.name, None, "simulated", "none", {"simulated": "simulated"}, power_limit_w=gpu.power_limit_w)
    return Dataset(card, tuple(rows))
