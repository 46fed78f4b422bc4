"""Divides the measured joules of a program by memory level, with traffic that a profiler counted."""

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

# The energy of the levels is a lower bound of the dynamic energy. If it is more than this many times the measured
# dynamic energy, the counters must be of another program.
_MOST_EXPLAINED = 2.0


@dataclass(frozen=True)
class MeasuredLevels:
    """Measured joules by component.

    Args:
        energy_j: Component -> joules: static, memory levels that were counted, and all other dynamic energy ("rest").
        traffic_bytes: Memory level -> counted bytes; None for a level that was not counted, whose joules are in the
            rest.
        energies: Energy of an access at each level.
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
    """Divide the measured joules of an iteration by memory level.

    Args:
        energy_j: Joules of an iteration.
        static_j: The part of `energy_j` that the board draws whether anything runs or not.
        counters: Traffic that was counted while the same program ran.
        gpu: The GPU that the program ran on.
        clock_mhz: The graphics clock that the GPU held.
        iterations: Number of iterations that ran while the traffic was counted.

    Raises:
        InputError: There are no joules to divide. Or the counted traffic costs far more than was measured, so it is of
            another program or another number of iterations.
    """
    if not energy_j > 0 or not iterations > 0:
        raise InputError(
            "there is no energy to divide by memory level",
            given=f"{energy_j} J in {iterations} iterations",
            allowed="joules and iterations above zero",
            hint="measure a longer run",
        )
    static_j = min(static_j, energy_j)
    energies = AccessEnergies.of(gpu, clock_mhz)
    traffic = {level: None if v is None else v / iterations for level, v in counters.traffic_bytes.items()}
    parts = {STATIC: static_j}
    parts |= {level: (traffic[level] or 0.0) / ACCESS_BYTES * energies.joules[level] for level in MEMORY_LEVELS}
    moved_j, dynamic_j = math.fsum(parts[level] for level in MEMORY_LEVELS), energy_j - static_j
    if moved_j > _MOST_EXPLAINED * dynamic_j:
        raise InputError(
            "the counted traffic needs more energy than was measured",
            given=f"{si(moved_j, 'J')} for the traffic, {si(dynamic_j, 'J')} of dynamic energy measured",
            allowed=f"at most {_MOST_EXPLAINED:g} times the measured dynamic energy",
            hint="count the same program, and give the number of iterations that were counted: iterations=...",
        )
    if moved_j > dynamic_j:
        parts |= {level: parts[level] * dynamic_j / moved_j for level in MEMORY_LEVELS}
    return MeasuredLevels(closed(parts, energy_j), traffic, energies)
