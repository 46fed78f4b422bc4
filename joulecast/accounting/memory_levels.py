"""Measured joules by memory level: a program's energy, and what counters say of its traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InputError
from ..hardware import GPU
from ..hardware.gpu import MEMORY_LEVELS
from ..hardware.ncu import Counters
from ..predictors.networks.energy_rows import STATIC
from ..predictors.networks.memory_levels import closed
from ..predictors.physics.access_energy import ACCESS_BYTES, AccessEnergies
from ..units import si

_MOST_EXPLAINED = 2.0  # Levels are a lower bound; twice the measured dynamic energy is another program.


@dataclass(frozen=True)
class MeasuredLevels:
    """Where measured joules went.

    Args:
        energy_j: Component -> joules: static, memory levels that were counted, and all other dynamic energy ("rest").
        traffic_bytes: Memory level -> bytes by the counters; None where they do not tell, and then the level's joules
            are in the rest.
        energies: What an access costs at each level.
    """

    energy_j: Mapping[str, float]
    traffic_bytes: Mapping[str, float | None]
    energies: AccessEnergies

    def __str__(self) -> str:
        whole = math.fsum(self.energy_j.values())
        lines = [f"{si(whole, 'J')} measured"]
        lines += [
            f"{name:>8}  {si(joules, 'J'):>9}  {100 * joules / whole:5.1f} %" for name, joules in self.energy_j.items()
        ]
        unknown = [level for level, value in self.traffic_bytes.items() if value is None]
        if unknown:
            lines.append(f"note: not counted, and in the rest: {', '.join(unknown)}")
        return "\n".join([*lines, f"note: energy per access: {self.energies.source}"])


def measured_levels(
    energy_j: float, static_j: float, counters: Counters, gpu: GPU, clock_mhz: float, iterations: float = 1
) -> MeasuredLevels:
    """Divide measured joules by counters.

    Args:
        energy_j: Joules of an iteration.
        static_j: The part of them that the board draws in any case.
        counters: Of kernels of the same program.
        gpu: The GPU that it ran on.
        clock_mhz: The graphics clock that it held.
        iterations: How many iterations the counters are of.

    Raises:
        InputError: The counters explain far more than was measured: they are of another program or another number of
            iterations. Or there are no joules to divide.
    """
    if not energy_j > 0 or not iterations > 0:
        raise InputError("there is nothing to divide", given=f"{energy_j} J in {iterations} iterations")
    static_j = min(static_j, energy_j)
    energies = AccessEnergies.of(gpu, clock_mhz)
    traffic = {level: None if v is None else v / iterations for level, v in counters.traffic_bytes.items()}
    parts = {STATIC: static_j}
    parts |= {level: (traffic[level] or 0.0) / ACCESS_BYTES * energies.joules[level] for level in MEMORY_LEVELS}
    moved_j, dynamic_j = math.fsum(parts[level] for level in MEMORY_LEVELS), energy_j - static_j
    if moved_j > _MOST_EXPLAINED * dynamic_j:
        raise InputError(
            "the counters are of more work than was measured",
            given=f"{si(moved_j, 'J')} by counters, {si(dynamic_j, 'J')} above static",
            hint="count the same program, and give the iterations that the counters are of: iterations=...",
        )
    if moved_j > dynamic_j:
        parts |= {level: parts[level] * dynamic_j / moved_j for level in MEMORY_LEVELS}
    return MeasuredLevels(closed(parts, energy_j), traffic, energies)
