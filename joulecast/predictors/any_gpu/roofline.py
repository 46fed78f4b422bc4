"""Physics alone, as a predictor: what everything that learns has to beat.

Every operation takes its least time (least_times.py), its energy follows constants that nothing was fitted to, and
launching takes what it takes on the A30's machine. Nothing is learned, so any measurement may test it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import Files
from ..measured.device_rows import launch_times_s
from ..physics.energy import PRIOR_ENERGY, EnergyConstants


@dataclass(frozen=True)
class Roofline:
    """No correction at all."""

    @property
    def energy(self) -> EnergyConstants:
        """What work costs, before any fit."""
        return PRIOR_ENERGY

    @property
    def host_s(self) -> Mapping[str, Mapping[str, float]]:
        """One launch like another."""
        return launch_times_s(())

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """One for everything."""
        return np.ones(len(operations)), np.ones(len(operations))

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`; there is nothing to look at."""

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`; there is nothing to store but its name."""
        return {"predictor": "roofline"}, {}

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote."""
        return cls()

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """See `ResidualModel.in_network`; a network is its parts."""
        return 1.0, 1.0
