"""Limits that a choice must satisfy, and the error when none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..units import si
from .evaluation import Curve


@dataclass(frozen=True)
class Constraints:
    """Limits on a choice. None stands for no limit.

    Args:
        max_time_s: Deadline of an iteration.
        max_power_w: Mean board power over an iteration.
    """

    max_time_s: float | None = None
    max_power_w: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_time_s", self.max_time_s), ("max_power_w", self.max_power_w)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise InputError(f"{name} is a positive number", given=repr(value), allowed="such as 0.05")

    def satisfied(self, curve: Curve) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether each clock of a curve satisfies the limits, shape (clocks,)."""
        keeps = np.ones(len(curve.clocks_mhz), dtype=bool)
        if self.max_time_s is not None:
            keeps &= curve.time_s <= self.max_time_s
        if self.max_power_w is not None:
            keeps &= curve.power_w <= self.max_power_w
        return keeps

    def violation(self, curve: Curve) -> str:
        """Why a GPU is excluded that satisfies the limits at none of its clocks."""
        late = self.max_time_s is not None and bool(np.min(curve.time_s) > self.max_time_s)
        hungry = self.max_power_w is not None and bool(np.min(curve.power_w) > self.max_power_w)
        if late == hungry:
            return "misses the deadline or exceeds the power budget at every clock"
        return f"{'misses the deadline' if late else 'exceeds the power budget'} at every clock"

    def none_satisfied(self, curves: Sequence[Curve], left_out: int) -> InputError:
        """The error when no clock of any curve satisfies the limits. It names the binding limit and the nearest choice.

        Args:
            curves: All curves that were compared.
            left_out: Number of GPUs that cannot run the job at all.
        """
        time_s = np.concatenate([curve.time_s for curve in curves])
        power_w = np.concatenate([curve.power_w for curve in curves])
        names = [f"{curve.name} at {clock:g} MHz" for curve in curves for clock in curve.clocks_mhz]
        limits = [
            (what, values, limit, unit)
            for what, values, limit, unit in (
                ("deadline", time_s, self.max_time_s, "s"),
                ("power budget", power_w, self.max_power_w, "W"),
            )
            if limit is not None
        ]
        # How far each choice exceeds the limit that it misses most, as a ratio.
        beyond = np.max([values / limit for _, values, limit, _ in limits], axis=0)
        nearest = int(np.argmin(beyond))
        alone = [what for what, values, limit, _ in limits if values.min() > limit]
        binding = " and the ".join(alone) if alone else " and the ".join(what for what, *_ in limits) + " together"
        return InputError(
            f"no choice satisfies the {binding}",
            given=", ".join(f"{what} {si(limit, unit)}" for what, _, limit, unit in limits),
            allowed="; ".join(f"least for the {what}: {si(values.min(), unit)}" for what, values, _, unit in limits),
            hint=f"nearest: {names[nearest]} with {si(time_s[nearest], 's')} and {si(power_w[nearest], 'W')}"
            + (
                f"; {left_out} more cannot run the job at all, and `joulecast sweep` lists the reasons"
                if left_out
                else ""
            ),
        )
