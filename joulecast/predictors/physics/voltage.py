"""The supply voltage of GPUs by clock, relative to that at the boost clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu
from ...hardware.gpu import VoltageCurve

# GPUs without measured curves of voltage and idle power get those of this GPU, scaled to their boost clock.
_LIKE = "NVIDIA A100-PCIE-40GB"
_ALWAYS_ONE = VoltageCurve(flat_mv=1.0, knee_mhz=0.0, top_mhz=1.0, top_mv=1.0, bend=1.0)


@cache
def voltage_like() -> GPU:
    """The GPU whose curves others get that were not measured."""
    return find_gpu(_LIKE)


class RelativeVoltage(NamedTuple):
    """Supply voltage at a clock over that at the boost clock, of one GPU or of several.

    Args:
        curve: The measured curve; for several GPUs its fields are arrays of shape (gpus, 1, 1).
        measured_boost_mhz: Boost clock of the GPU that it was measured on.
        boost_mhz: Boost clock of the GPU that it is scaled to.
        boost_mv: Millivolts of the measured GPU at its boost clock.
    """

    curve: VoltageCurve
    measured_boost_mhz: Any
    boost_mhz: Any
    boost_mv: Any

    @classmethod
    def of_all(cls, gpus: Sequence[GPU]) -> Self:
        """The curves of several GPUs as one, for clocks of shape (gpus, clocks, operations)."""
        if len(gpus) == 1:
            return cls(*voltage_of(gpus[0]))
        each = [voltage_of(gpu) for gpu in gpus]
        table = np.array([(*astuple(one.curve), *one[1:]) for one in each], dtype=float).T[:, :, None, None]
        curve, others = np.split(table, [-3])
        return cls(VoltageCurve(*curve), *others)

    def at(self, clock_mhz: FloatArray) -> FloatArray:
        """The voltage at each of some clocks, relative to that at the boost clock; in the shape of the clocks."""
        relative: FloatArray = self.curve.at(clock_mhz * self.measured_boost_mhz / self.boost_mhz) / self.boost_mv
        return relative


@lru_cache(maxsize=256)
def voltage_of(gpu: GPU) -> RelativeVoltage:
    """The voltage of a GPU; without a measured curve that of the A100, scaled to its boost clock."""
    known = voltage_like() if gpu.voltage is None else gpu
    # A catalogue that was changed may have no curve at all.
    curve = known.voltage or _ALWAYS_ONE
    boost_mhz = float(known.boost_clock_mhz)
    return RelativeVoltage(curve, boost_mhz, float(gpu.boost_clock_mhz), float(curve.at(boost_mhz)))


def relative_voltage(gpu: GPU, clock_mhz: FloatArray | float) -> FloatArray:
    """Supply voltage at a clock over that at the boost clock.

    Returns:
        An array in the shape of `clock_mhz`, or of shape (1,) for a number.
    """
    return voltage_of(gpu).at(np.atleast_1d(np.asarray(clock_mhz, dtype=float)))


def logic_energy(voltage: FloatArray, power: FloatArray | float) -> FloatArray:
    """Energy of a chip's logic, relative to that at the boost clock."""
    # numpy's own power function takes ten times as long.
    found: FloatArray = voltage**2 * (1.0 + (power - 2.0) * (voltage - 1.0))
    return found
