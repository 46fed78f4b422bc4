"""What times between two CUDA events hide: launches, kernels behind them, and a GPU that was throttled.

The GPU passes the first event at once and then waits for the launch. The host issues the second event some time after
the launch. So

    time = launch + max(kernels, after)

and a kernel that is shorter than `after` cannot be seen: all such calls of a kind take the same time, their floor
(24 to 108 us in neusight2025, where the kernels themselves take 1 to 20 us). Element-wise kernels reveal both unknowns,
because their time is proportional to the bytes. A line through the longer ones has its value at zero bytes at `launch`
(residuals are 0.1 to 1 %), and the floor minus `launch` is `after`, which hardly differs between kinds.

A board that is too hot, or held by its power cap, lowers its clock. A table of times does not state that but shows it:
long products fill the GPU, so linear layers and batched products should reach about the same share of the peak. In
neusight2025, linear layers of more than half a millisecond at the peak reach 0.9 to 1.3 of the rate of batched products
of that length on A100, V100, P100 and T4, but 0.5 on the P4, where short linear layers are not slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_SMALL_S = 3e-6  # Calls that would take less than this at the data sheet's rates are bound by the host.
_LEAST = 50
_FLOOR_QUANTILE = 0.1
# Within one kind the host's speed changes during a campaign by up to 1.28 (T4); calls up to here may be bound by it.
HIDDEN_BELOW = 1.35
_LINE = (
    1.5,
    10.0,
)  # As multiples of the floor: long enough for the kernel to be visible, short enough for the intercept to matter.


@dataclass(frozen=True)
class Launches:
    """Times that the host of one GPU adds to kernels, by kind of call: the least seconds between two events.

    `after_s` are the seconds from the launch to the second event.
    """

    floor_s: Mapping[Any, float]
    after_s: float

    def launch_s(self, kind: Any) -> float:
        """Seconds before the kernel of a kind of call starts."""
        return self.floor_s[kind] - self.after_s

    def device_time_s(self, kind: Any, time_s: float) -> float | None:
        """Seconds that the GPU worked in a call; None where the second event came later than the kernel's end."""
        return time_s - self.launch_s(kind) if time_s > HIDDEN_BELOW * self.floor_s[kind] else None


def floor_s(time_s: Values, least_s: Values) -> float:
    """The floor of one kind of call, from measured times and the times at the data sheet's rates."""
    small = time_s[least_s < _SMALL_S]
    return float(np.quantile(small, _FLOOR_QUANTILE) if len(small) >= _LEAST else time_s.min())


def after_s(time_s: Values, least_s: Values) -> float | None:
    """Seconds between launch and second event, from element-wise calls of one kind; None where there are too few."""
    floor = floor_s(time_s, least_s)
    line = (time_s > _LINE[0] * floor) & (time_s < _LINE[1] * floor)
    if line.sum() < _LEAST:
        return None
    return floor - beside_s(time_s[line], least_s[line])


def beside_s(time_s: Values, least_s: Values) -> float:
    """Seconds that element-wise calls take besides their kernels, for calls long enough to be bound by the GPU."""
    if len(time_s) < 2:
        return 0.0
    _, at_zero_s = np.polyfit(least_s, time_s, 1, w=1 / time_s)
    return max(0.0, float(at_zero_s))


LONG_S = 0.5e-3
"""Least time by the data sheet of products that fill a GPU and last long enough to be throttled."""

_LEAST_ROWS = 50
# Relative to the rate of the other kind. On four GPUs that were not throttled the lowest value is 0.93.
_THROTTLED = 0.7


def throttled_kinds(times: Mapping[str, tuple[Values, Values]]) -> frozenset[str]:
    """The kinds of products that were measured on a GPU while it was throttled.

    For each kind these are the measured seconds, and the least seconds that the data sheet allows, of each row.
    """
    reached = {}
    for kind, (time_s, least_s) in times.items():
        long = least_s > LONG_S
        if long.sum() >= _LEAST_ROWS:
            reached[kind] = float(np.median(least_s[long] / time_s[long]))
    return frozenset(kind for kind, share in reached.items() if share < _THROTTLED * max(reached.values()))
