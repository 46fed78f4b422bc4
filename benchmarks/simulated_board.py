"""A simulated board with known deviations from what is predicted for its GPU, by formulas of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from joulecast import Operation
from joulecast.datasets import Card, Dataset, Measurement
from joulecast.hardware import GPU
from joulecast.predictors.physics.energy import relative_voltage, static_power_w

NOISE, STEP_MHZ = 0.02, 15


def deep(clock: np.ndarray) -> np.ndarray:
    """A voltage that falls in a line to 0.6 at 0.45 of the boost clock; the catalogue's is flat below 0.69, at 0.78."""
    return 0.6 + 0.4 * np.clip((clock - 0.45) / 0.55, 0.0, None)


def shallow(clock: np.ndarray) -> np.ndarray:
    """A voltage that falls to 0.9 only."""
    return 0.9 + 0.1 * np.clip((clock - 0.45) / 0.55, 0.0, None)


def bent(clock: np.ndarray) -> np.ndarray:
    """A voltage that falls in a parabola to 0.65 at 0.2 of the boost clock."""
    return 0.65 + 0.35 * np.clip((clock - 0.2) / 0.8, 0.0, None) ** 2


@dataclass(frozen=True)
class Board:
    """How a board differs from what is predicted for its GPU. Seconds and watts have noise, too.

    Args:
        products: Rate of products and convolutions, relative to the prediction.
        bandwidth: Bandwidth of its memory, likewise.
        static_w: Watts that the waiting board draws more.
        launch: Time that the host takes to launch, relative to the prediction.
        clock_mhz: The highest clock that it holds; None for the GPU's default.
        voltage: Supply voltage by clock, both relative to those at the boost clock; None for that of the catalogue. By
            it, the clock that the board holds under its cap is another one.
    """

    products: float = 0.8
    bandwidth: float = 0.9
    static_w: float = 15.0
    launch: float = 1.3
    clock_mhz: float | None = None
    voltage: Callable[[np.ndarray], np.ndarray] | None = None


USUAL = Board()
AS_PREDICTED = Board(1.0, 1.0, 0.0, 1.0)
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


def measured(predictor, asked: Sequence[Operation], gpu: GPU, seed: int = 0, board: Board = USUAL) -> Dataset:
    """What a board shows of operations: loops, device times, and power by a sensor with noise.

    `predictor` predicts what a board without deviations would show.
    """
    draw, boost_mhz = np.random.default_rng(seed), float(gpu.boost_clock_mhz)
    usual = predictor.predict(asked)
    work, top_mhz, host_s = usual.work, usual.held_clock_mhz, board.launch * usual.host_time_s
    product = np.array([each.row.family in ("matmul", "convolution") for each in asked])

    def shown(mhz: np.ndarray) -> tuple[np.ndarray, ...]:
        """Seconds of the device and of the loop, static watts and dynamic joules, each operation at its own clock."""
        # Times of loops were learned under the cap, so they hold at the clock that the cap leaves.
        as_clocked = boost_mhz * mhz / top_mhz
        on_clock = (work.parts.compute_s**3 + work.parts.cache_s**3) * (work.clock_mhz / as_clocked) ** 3
        memory = work.parts.memory_s**3
        slowed = on_clock * np.where(product, board.products**-3, 1.0) + memory * board.bandwidth**-3
        device_s = work.at(as_clocked)[0] * np.cbrt(slowed / (on_clock + memory))
        loop_s = (device_s**4 + host_s**4) ** 0.25
        own = 1.0 if board.voltage is None else board.voltage(mhz / boost_mhz) / relative_voltage(gpu, mhz)
        joules = work.memory_j + (work.at(mhz)[1] - work.memory_j) * own**2
        static_w = static_power_w(gpu, mhz) + board.static_w
        return device_s, loop_s, static_w, joules

    held_mhz = np.full(len(asked), float(gpu.min_clock_mhz))
    for mhz in np.arange(board.clock_mhz or boost_mhz, gpu.min_clock_mhz, -STEP_MHZ)[::-1]:
        _, loop_s, static_w, joules = shown(np.full(len(asked), mhz))
        held_mhz = np.where(static_w + joules / loop_s <= gpu.power_limit_w, mhz, held_mhz)
    device_s, _, static_w, joules = shown(held_mhz)
    noise = np.exp(NOISE * draw.standard_normal((2, len(asked))))
    device_s = device_s * noise[0]
    loop_s = (device_s**4 + host_s**4) ** 0.25
    # A device that waits for its host between two operations does not exceed the cap within one either.
    joules = np.minimum(joules, (gpu.power_limit_w - static_w) * device_s)
    power_w = np.minimum((static_w + joules / loop_s) * noise[1], gpu.power_limit_w)
    rows = [
        Measurement(operation, t, w, t * w, device_time_s=d, clock_mhz=f, started=DAY, method="simulated")
        for operation, t, w, d, f in zip(
            asked, *(each.tolist() for each in (loop_s, power_w, device_s, held_mhz)), strict=True
        )
    ]
    card = Card(
        gpu.name, board.clock_mhz, "simulated", "none", {"simulated": "simulated"}, power_limit_w=gpu.power_limit_w
    )
    return Dataset(card, tuple(rows))
