"""Costs of operations at a GPU's default clock and cap, as a table with one row for each operation.

A predictor of one GPU computes them once for each operation; other clocks and caps follow from them by the clock law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import GPU
from .operation_predictions import Source
from .physics.bounds import Bounds
from .physics.clock import Work
from .physics.energy import PRIOR_ENERGY
from .physics.least_times import LeastTimes
from .physics.norms import smooth_max

MISSING, _MODELLED, _MEASURED = 0, 1, 2
_SOURCES = np.array(["missing", "modelled", "measured"], dtype=object)

COLUMNS = (
    *("source", "time_s", "power_w", "device_s", "dynamic_j", "host_s", "work_mhz"),
    *("compute_s", "memory_s", "cache_s", "switching_j", "awake_j", "memory_j", "least_compute_s", "least_fixed_s"),
)
"""What a row contains: the source, the loop, the costs on the device, the host's time, and the work (`Work`)."""


@dataclass(frozen=True)
class AtDefault:
    """Costs of operations on a GPU at its default clock and cap.

    Args:
        rows: A row of COLUMNS for each operation, shape (operations, columns); NaN in all but the first where missing.
        gpu: The GPU.
    """

    rows: FloatArray
    gpu: GPU

    @cached_property
    def of(self) -> dict[str, FloatArray]:
        """Name of a column -> its values, shape (operations,)."""
        return dict(zip(COLUMNS, np.ascontiguousarray(self.rows.T), strict=True))

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Mask of the operations whose costs are known, shape (operations,)."""
        covered: NDArray[np.bool_] = self.of["source"] != MISSING
        return covered

    def sources(self, as_measured: bool) -> tuple[Source, ...]:
        """Where the cost of each operation comes from.

        They are measured ones only at the clock and cap of the measurements.
        """
        codes = self.of["source"].astype(int)
        return tuple(_SOURCES[codes if as_measured else np.minimum(codes, _MODELLED)].tolist())

    def parts(self, share: FloatArray) -> AtDefault:
        """The costs of parts of these operations, which were not measured themselves; see physics/partial.py.

        Args:
            share: Work of each part over that of the whole operation, shape (operations,); 1 for whole ones.
        """
        of = dict(self.of)
        on_device = [name for name in COLUMNS if name.endswith(("_s", "_j")) and name not in ("time_s", "host_s")]
        of |= {name: share * of[name] for name in on_device}
        host_s = of["host_s"]
        of["time_s"] = of["time_s"] * smooth_max(of["device_s"], host_s) / smooth_max(self.of["device_s"], host_s)
        of["source"] = np.where(share < 1, np.minimum(of["source"], _MODELLED), of["source"])
        return AtDefault(np.column_stack([of[name] for name in COLUMNS]), self.gpu)

    @cached_property
    def work(self) -> Work:
        """The work, at the clock that each operation holds under the default cap."""
        of = self.of
        return Work(
            gpu=self.gpu,
            clock_mhz=of["work_mhz"],
            parts=LeastTimes(of["compute_s"], of["memory_s"], of["cache_s"]),
            switching_j=of["switching_j"],
            awake_j=of["awake_j"],
            memory_j=of["memory_j"],
            most_mhz=of["work_mhz"],
            cap_w=self.gpu.power_limit_w,
            bounds=Bounds(of["least_compute_s"], of["least_fixed_s"]),
            voltage_power=PRIOR_ENERGY.voltage_power,
        )


def rows_of(
    is_measured: Sequence[bool],
    time_s: FloatArray,
    power_w: FloatArray,
    device_s: FloatArray,
    dynamic_j: FloatArray,
    host_s: FloatArray,
    work: Work,
) -> FloatArray:
    """Rows of operations that are covered; all arrays have the shape (operations,)."""
    source = np.where(is_measured, _MEASURED, _MODELLED)
    parts, bounds = work.parts, work.bounds
    return np.column_stack(
        [
            *(source, time_s, power_w, device_s, dynamic_j, host_s, work.clock_mhz),
            *(parts.compute_s, parts.memory_s, parts.cache_s, work.switching_j, work.awake_j, work.memory_j),
            *(bounds.compute_s, bounds.fixed_s),
        ]
    )
