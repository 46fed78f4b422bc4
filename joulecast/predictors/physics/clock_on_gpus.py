"""The clock law of clock.py for several GPUs at once: arrays over GPUs, clocks and operations.

A search compares every GPU at dozens of clocks. An array of one GPU is so small that numpy spends most of its time on
starting its functions, and one array of all GPUs takes a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ...arrays import FloatArray, total
from .bounds import Bounds
from .clock import Work, costs_at
from .least_times import LeastTimes
from .voltage import RelativeVoltage

_MOST_VALUES = 200_000  # Values of one array (GPUs times clocks times operations) that are computed at once: 1.6 MB.


@dataclass(frozen=True)
class WorkOnGpus:
    """The work of the same operations on several GPUs; see `Work`, whose fields these are.

    All arrays have the shape (gpus, 1, operations), or (gpus, 1, 1) where all operations of a GPU have the same value.
    An operation of unknown cost counts as one that costs nothing.

    Args:
        boost_mhz: Their boost clocks.
        voltage: Their supply voltages.
        own_voltage: The voltage at `clock_mhz`.
        awake_w: Watts of SMs that are awake.
    """

    boost_mhz: FloatArray
    voltage: RelativeVoltage
    clock_mhz: FloatArray
    own_voltage: FloatArray
    parts: LeastTimes
    switching_j: FloatArray
    awake_w: FloatArray
    memory_j: FloatArray
    most_mhz: FloatArray
    bounds: Bounds

    @classmethod
    def of(cls, works: Sequence[Work]) -> Self:
        """The work of a list of operations, on each GPU.

        Args:
            works: The work on each GPU.
        """
        gpus = [work.gpu for work in works]
        count = len(works[0].switching_j)

        def stacked(values: Sequence[FloatArray | float], missing: float = 0.0) -> FloatArray:
            wide = np.empty((len(values), count))
            for place, value in enumerate(values):
                wide[place] = value
            wide[np.isnan(wide)] = missing
            return (wide[:, :1] if (wide == wide[:, :1]).all() else wide)[:, None, :]

        parts = [(work.parts.compute_s, work.parts.memory_s, work.parts.cache_s) for work in works]
        return cls(
            boost_mhz=np.array([float(gpu.boost_clock_mhz) for gpu in gpus])[:, None, None],
            voltage=RelativeVoltage.of_all(gpus),
            clock_mhz=stacked([work.clock_mhz for work in works], 1.0),
            own_voltage=stacked([work.own_voltage for work in works], 1.0),
            parts=LeastTimes(*(stacked(each) for each in zip(*parts, strict=True))),
            switching_j=stacked([work.switching_j for work in works]),
            awake_w=stacked([work.awake_w for work in works]),
            memory_j=stacked([work.memory_j for work in works]),
            most_mhz=stacked([work.most_mhz for work in works], np.inf),
            bounds=Bounds(*(stacked(each) for each in zip(*(work.bounds for work in works), strict=True))),
        )

    def at(self, clock_mhz: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of each operation, shape (gpus, clocks, operations) each; see `Work.at`.

        Args:
            clock_mhz: Graphics clocks in MHz, shape (gpus, clocks).
        """
        clocks = np.minimum(clock_mhz[:, :, None], self.most_mhz)
        return costs_at(self, clocks, self.voltage.at(clocks), self.boost_mhz)

    def mean_mhz(self, clock_mhz: FloatArray, busy_s: FloatArray, counts: FloatArray) -> FloatArray:
        """The mean clock over device time, shape (gpus, clocks).

        It is lower than the clock asked for if single operations were measured to hold a lower one. Rounded, because
        rounding errors would make the mean of equal clocks differ from that clock.

        Args:
            clock_mhz: Graphics clocks in MHz, shape (gpus, clocks).
            busy_s: Device seconds of an iteration, shape (gpus, clocks).
            counts: Calls of each operation in one iteration, shape (operations,).
        """
        if (self.most_mhz >= clock_mhz.max()).all():
            same: FloatArray = np.round(clock_mhz, 6)
            return same
        weighted = self.at(clock_mhz)[0] * np.minimum(clock_mhz[:, :, None], self.most_mhz)
        mean: FloatArray = total(weighted * counts) / np.maximum(busy_s, 1e-300)
        return np.round(mean, 6)

    def sums_at(self, clock_mhz: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of an iteration of a network, shape (gpus, clocks) each.

        Args:
            clock_mhz: Graphics clocks in MHz, shape (gpus, clocks).
            counts: Calls of each operation in one iteration, shape (operations,).
        """
        pieces = -(-clock_mhz.size * len(counts) // _MOST_VALUES)
        each = np.array_split(clock_mhz, min(pieces, clock_mhz.shape[1]), axis=1)
        sums = [[total(costs * counts) for costs in self.at(piece)] for piece in each]
        device_s, dynamic_j = (np.concatenate(parts, axis=1) for parts in zip(*sums, strict=True))
        return device_s, dynamic_j
