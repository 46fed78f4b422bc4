"""What is known of the errors of GPUs' power sensors, and energies corrected for them.

Yang et al. compared what boards report with a power meter at their supply: reported = gain x metered + offset. They
also found how often a reading changes, and over which part of the time since the last change it averages. The numbers
are in published_power.toml, with their source.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

from ..errors import InputError
from ..hardware import find_gpu

BOARD_SPREAD = 0.015
"""Standard deviation of the error between boards of one model: of five RTX 3090, -4.0, -1.0, -0.1, -0.6 and -1.8 %."""

REST = (-0.09, 0.034)
"""Lowest and highest error of 13 models: what is known of a model that was not compared."""


_PUBLISHED = tomllib.loads(files(__package__).joinpath("published_power.toml").read_text(encoding="utf-8"))
_KNOWN, _WINDOWS_MS = _PUBLISHED["sensor"], _PUBLISHED["sensor_window_ms"]


def corrected_j(name: str, energy_j: float, duration_s: float) -> float | None:
    """The joules that a meter at the supply would have counted; None for a model that was not compared with one.

    A counter adds up the same sensor's readings, so it is taken to have the same gain and offset.

    Args:
        name: Name of the GPU as its driver states it.
    """
    error = _KNOWN.get(name)
    return None if error is None else max(0.0, (energy_j - error["offset_w"] * duration_s) / error["gain"])


def sensor_note(device: str, name: str, counter: bool) -> str | None:
    """What is to be known about the sensor of a GPU, in a sentence; None if nothing is.

    Args:
        name: Name of the GPU as its driver states it.
        counter: Whether its energy comes from a counter, which sees what readings miss.
    """
    parts = []
    if (error := _KNOWN.get(name)) is not None:
        parts.append(f"a board of this model reports {error['gain']:g} x its power {error['offset_w']:+g} W")
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
