"""Device time out of times between two events around one call that starts on an idle GPU.

The GPU passes the first event at once and then waits for the launch. The host passes on the second event some time
after the launch. So

    time = launch + max(kernels, after)

and a kernel that is shorter than `after` cannot be seen: all such calls of a kind take the same time, their floor
(24 to 108 us in neusight2025, where the kernels themselves take 1 to 20 us). Element-wise kernels show all of it,
because theirs is proportional to the bytes: a line through those that are longer meets zero bytes at `launch`
(residuals of 0.1 to 1 %), and the floor less the launch is `after`, which hardly differs between kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_SMALL_S = 3e-6  # What would take less than this at the data sheet's rates is bound by the host.
_LEAST = 50
_FLOOR_QUANTILE = 0.1
# Within one kind the host's speed changes during a campaign by up to 1.28 (T4); calls up to here may be bound by it.
HIDDEN_BELOW = 1.35
_LINE = (1.5, 10.0)  # In floors: long enough to be seen, short enough for the intercept to weigh.


@dataclass(frozen=True)
class Launches:
    """What surrounds the kernels on one GPU's host.

    Args:
        floor_s: Kind of call -> what it takes at least.
        after_s: Seconds from the launch to the second event.
    """

    floor_s: Mapping[Any, float]
    after_s: float

    def launch_s(self, kind: Any) -> float:
        """What a kind of call takes before its kernel starts."""
        return self.floor_s[kind] - self.after_s

    def device_time_s(self, kind: Any, time_s: float) -> float | None:
        """What the GPU worked in a call; None where that is hidden behind the host."""
        return time_s - self.launch_s(kind) if time_s > HIDDEN_BELOW * self.floor_s[kind] else None


def floor_s(time_s: Values, least_s: Values) -> float:
    """What calls of one kind take at least, from their times and those at the data sheet's rates."""
    small = time_s[least_s < _SMALL_S]
    return float(np.quantile(small, _FLOOR_QUANTILE) if len(small) >= _LEAST else time_s.min())


def after_s(time_s: Values, least_s: Values) -> float | None:
    """What passes between launch and second event, from element-wise calls of one kind; None where they are few."""
    floor = floor_s(time_s, least_s)
    line = (time_s > _LINE[0] * floor) & (time_s < _LINE[1] * floor)
    if line.sum() < _LEAST:
        return None
    return floor - beside_s(time_s[line], least_s[line])


def beside_s(time_s: Values, least_s: Values) -> float:
    """What element-wise calls take beside their kernels, all of them long enough to be bound by the GPU."""
    if len(time_s) < 2:
        return 0.0
    _, at_zero_s = np.polyfit(least_s, time_s, 1, w=1 / time_s)
    return max(0.0, float(at_zero_s))
