"""Compares the update period of a sensor with the lengths of the events that were accounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metering.energy_curve import EnergyCurve
from ..units import si
from .events import Events


@dataclass(frozen=True)
class Resolution:
    """How short the events are that a sensor can measure.

    Args:
        update_s: Median time between two updates of the sensor in seconds; None if there is no sensor.
        iteration_s: Seconds of an iteration.
        resolved_share: Share of the time that is spent in events of at least one update period, whose power the sensor
            measures. The joules of shorter events are divided by time, or by a model.
    """

    update_s: float | None
    iteration_s: float
    resolved_share: float

    def __str__(self) -> str:
        if self.update_s is None:
            return "no sensor"
        return (
            f"the sensor updates every {si(self.update_s, 's')}, an iteration takes {si(self.iteration_s, 's')}: "
            f"{100 * self.resolved_share:.0f} % of the time is in operators that last at least one update; the joules "
            "of shorter ones are not measured one by one"
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures, in SI units."""
        return {
            "update_s": self.update_s,
            "iteration_s": self.iteration_s,
            "resolved_share": self.resolved_share,
        }


def resolution(events: Events, curves: Sequence[EnergyCurve], iteration_s: float) -> Resolution:
    """The resolution of sensors for some events.

    Args:
        events: The events that ran.
        curves: Energy over time of each counter. The slowest counter decides.
        iteration_s: Seconds of an iteration.
    """
    spacings = [float(np.median(np.diff(curve.time_s))) for curve in curves if len(curve.time_s) > 1]
    if not spacings:
        return Resolution(None, iteration_s, 0.0)
    length_s = events.end_s - events.start_s
    total_s = float(length_s.sum())
    resolved_s = float(length_s[length_s >= max(spacings)].sum())
    return Resolution(max(spacings), iteration_s, resolved_s / total_s if total_s else 0.0)
