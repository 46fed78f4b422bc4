"""What is known of the errors of GPUs' power sensors, and energies corrected for them.

Yang et al. ("Part-time power measurements", SC 2024; github.com/JimZeyuYang/GPU_Power_Benchmark, commit 4b5c944c)
compared what boards report with a power meter at their supply: reported = gain x metered + offset. They also found how
often a reading changes, and over which part of the time since the last change it averages.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InputError
from ..hardware import find_gpu

BOARD_SPREAD = 0.015
"""Standard deviation of the error between boards of one model: of five RTX 3090, -4.0, -1.0, -0.1, -0.6 and -1.8 %."""

REST = (-0.09, 0.034)
"""Lowest and highest error of 13 models: what is known of a model that was not compared."""


class SensorLine(NamedTuple):
    """What a model's sensor reports.

    Args:
        gain: Reported watts for each watt of the meter.
        offset_w: Watts that it reports at none.
    """

    gain: float
    offset_w: float


# Name by the driver -> gain and offset, of boards whose fit is good; means over drivers 525 to 535, whose gains differ
# by 1 % at most. One board of each was compared.
_KNOWN = {
    "NVIDIA GeForce RTX 3090": SensorLine(0.944, 4.5),
    "NVIDIA GeForce RTX 3070 Ti": SensorLine(1.004, -4.8),
    "NVIDIA GeForce RTX 2080 Ti": SensorLine(0.967, -5.8),
    "NVIDIA GeForce GTX 1080 Ti": SensorLine(0.999, -0.3),
    "NVIDIA GeForce GTX 1080": SensorLine(1.064, -5.2),
    "NVIDIA GeForce GTX TITAN X": SensorLine(1.010, 1.2),
    "Tesla M40": SensorLine(0.971, 1.4),
    "Tesla K40m": SensorLine(1.024, 0.8),
    "Tesla K80": SensorLine(0.964, -6.3),
    "NVIDIA A100-PCIE-40GB": SensorLine(0.954, -1.2),
    "Tesla P100-PCIE-16GB": SensorLine(0.993, 0.9),
    "NVIDIA GeForce RTX 4090": SensorLine(1.047, -22.8),
    "NVIDIA TITAN X Pascal": SensorLine(1.025, -2.6),
}

# Chip or generation -> milliseconds between two changes of `power.draw`, and over which it averages (driver 535).
_WINDOWS_MS = {
    "GA100": (100, 25),
    "Pascal": (20, 10),
    "Volta": (20, 10),
    "Turing": (100, 100),
    "Ampere": (100, 1000),
    "Ada Lovelace": (100, 1000),
    "Hopper": (100, 1000),
}


def corrected_j(name: str, energy_j: float, duration_s: float) -> float | None:
    """The joules that a meter at the supply would have counted; None for a model that was not compared with one.

    A counter adds up the same sensor's readings, so it is taken to have the same gain and offset.

    Args:
        name: Name of the GPU as its driver states it.
    """
    error = _KNOWN.get(name)
    return None if error is None else max(0.0, (energy_j - error.offset_w * duration_s) / error.gain)


def sensor_note(device: str, name: str, counter: bool) -> str | None:
    """What is to be known about the sensor of a GPU, in a sentence; None if nothing is.

    Args:
        name: Name of the GPU as its driver states it.
        counter: Whether its energy comes from a counter, which sees what readings miss.
    """
    parts = []
    if (error := _KNOWN.get(name)) is not None:
        parts.append(f"a board of this model reports {error.gain:g} x its power {error.offset_w:+g} W")
    elif name:
        low, high = REST
        parts.append(f"not compared with a meter; other models read {-100 * low:.0f} % low to {100 * high:.0f} % high")
    try:
        gpu = find_gpu(name)
    except InputError:
        window = None
    else:
        window = _WINDOWS_MS.get(gpu.chip) or _WINDOWS_MS.get(gpu.architecture)
    if window and not counter and window[0] != window[1]:
        update_ms, average_ms = window
        seen = f"see {average_ms} of every {update_ms} ms" if average_ms < update_ms else f"average {average_ms} ms"
        parts.append(f"its readings {seen}")
    return f"{device}: {'; '.join(parts)} (Yang et al. 2024)" if parts else None
