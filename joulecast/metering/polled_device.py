"""PolledDevice: one device in the sampler process, with its recent samples, and the reason if it was lost."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import SensorError
from .recording import block_of
from .samples import FIELDS, RANGES, Reader, Samples, is_possible_next

_MOST_SAMPLES = 200_000  # Held in memory until they are requested: half an hour of a campaign.
_ENERGY = FIELDS.index("energy_j")


class PolledDevice:
    """A device that is polled.

    Args:
        waits: Whether a reading waits for the sensor, so that the moment of a reading cannot be chosen.
    """

    def __init__(
        self, name: str, read: Reader, *, waits: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.waits = name, waits
        self._read, self._clock = read, clock
        self.samples: deque[tuple[float, ...]] = deque(maxlen=_MOST_SAMPLES)
        self.lost: str | None = None
        self.energy_j = 0.0
        self._written_s = -math.inf
        self._counter_j = 0.0  # the last value that was possible

    def poll(self) -> bool:
        """Read the device once, unless it was lost. Returns whether its energy counter has changed."""
        if self.lost is not None:
            return False
        try:
            readings = {"time_s": self._clock(), **self._read()}
        except SensorError as error:
            self.lost = str(error.given or error.what)
            return False
        sample = tuple(self._possible(name, readings.get(name, math.nan)) for name in FIELDS)
        moved = bool(self.samples) and sample[_ENERGY] != self.samples[-1][_ENERGY]
        self._add_up(sample)
        self.samples.append(sample)
        return moved

    def _possible(self, name: str, value: float) -> float:
        """A reading, or NaN for one that no sensor can have: it is missing, and must not spoil the others."""
        low, high = RANGES[name]
        if not low <= value <= high:
            return math.nan
        if name == "energy_j":
            if not is_possible_next(value, self._counter_j):
                return math.nan
            self._counter_j = value
        return value

    @property
    def has_counter(self) -> bool:
        """Whether it can still be read and its last reading included an energy counter."""
        return self.lost is None and bool(self.samples) and not math.isnan(self.samples[-1][_ENERGY])

    def _add_up(self, sample: tuple[float, ...]) -> None:
        """Update the running total for the live display; results are computed from the samples."""
        if self.samples:
            now, before = dict(zip(FIELDS, sample, strict=True)), dict(zip(FIELDS, self.samples[-1], strict=True))
            counted = now["energy_j"] - before["energy_j"]
            integrated = before["power_w"] * (now["time_s"] - before["time_s"])
            self.energy_j += counted if counted >= 0 else integrated if integrated == integrated else 0.0

    def total(self) -> dict[str, float | None]:
        """Joules used so far, and the last power in watts."""
        last = dict(zip(FIELDS, self.samples[-1], strict=True)) if self.samples else {}
        power_w = last.get("power_w", float("nan"))
        return {"energy_j": self.energy_j, "power_w": None if power_w != power_w else power_w}

    def block(self) -> list[Mapping[str, Any]]:
        """A line with the samples since the last such line; an empty list if there are none."""
        fresh = [sample for sample in self.samples if sample[0] > self._written_s]
        if not fresh:
            return []
        self._written_s = fresh[-1][0]
        while len(self.samples) > 1:  # the last one is needed for the running total
            self.samples.popleft()
        return [block_of(self.name, Samples(*np.array(fresh).T))]

    def since(self, since_s: float) -> dict[str, Any]:
        """Answer a request: all samples since a moment, and the last one before it, which is valid until the next."""
        if self.lost is not None:
            return {"lost": self.lost}
        while len(self.samples) > 1 and self.samples[1][0] <= since_s:
            self.samples.popleft()
        return {"samples": [[None if v != v else v for v in sample] for sample in self.samples]}
