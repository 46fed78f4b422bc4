"""Physics alone as a predictor: the reference that every learned predictor has to beat.

Every operation takes its least time (least_times.py). Its energy follows from prior constants, which were not fitted
to measurements, and its launch takes as long as on the host of the A30. Nothing is learned, so any measurement may be
used as a test.
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
from ..measured import launch_times_s
from ..physics.energy import PRIOR_ENERGY, EnergyConstants


@dataclass(frozen=True)
class NoResidual:
    """A residual model without any correction: all factors are 1."""

    @property
    def energy(self) -> EnergyConstants:
        """Energy constants before any fit."""
        return PRIOR_ENERGY

    @property
    def host_s(self) -> Mapping[str, Mapping[str, float]]:
        """Mode -> kind -> host seconds of a launch, the same for all kinds."""
        return launch_times_s(())

    def factors(self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True) -> FloatArray:
        """See `ResidualModel.factors`; all factors are 1."""
        return np.ones(len(operations))

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`; there is nothing to compute in advance."""

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`; there is nothing to store but its name."""
        return {"predictor": "roofline"}, {}

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote."""
        return cls()
