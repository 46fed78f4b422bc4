"""Physics alone, as a predictor: what everything that learns has to beat.

Every operation takes its least time (physics.py), its energy follows constants that nothing was fitted to, and
launching takes what it takes on the A30's machine. Nothing is learned, so any measurement may test it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..hardware import GPU
from ..operations import Operation
from .boosting import launch_times_s
from .features import FloatArray
from .physics import EnergyConstants

# Where boosting.fit_energies starts, too. Powers of single operations alone do not tell them apart: most large ones sit
# at the cap.
ENERGY = EnergyConstants(
    fp32_j_per_flop=4e-12,
    tensor_j_per_flop=0.6e-12,
    hbm_j_per_byte=70e-12,
    gddr_j_per_byte=170e-12,
    awake_w_per_sm_ghz=1.2,
)
"""What work costs, as far as physics tells."""


@dataclass(frozen=True)
class Roofline:
    """No correction at all."""

    @property
    def energy(self) -> EnergyConstants:
        """What work costs, before any fit."""
        return ENERGY

    @property
    def host_s(self) -> Mapping[str, Mapping[str, float]]:
        """One launch like another."""
        return launch_times_s(())

    def factors(self, operations: Sequence[Operation], gpu: GPU) -> tuple[FloatArray, FloatArray]:
        """One for everything."""
        return np.ones(len(operations)), np.ones(len(operations))
