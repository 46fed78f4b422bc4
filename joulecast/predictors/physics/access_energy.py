"""What an access to 32 bytes costs at each memory level of a GPU: measured on it, or a prior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

from ...hardware import GPU, find_gpu
from ...hardware.gpu import MEMORY_LEVELS
from .energy import ENERGY_SPREAD, PRIOR_ENERGY, process_factor, relative_voltage

ACCESS_BYTES = 32
"""What memory moves at once: a sector."""

_LIKE = "NVIDIA A100-PCIE-40GB"  # The one GPU whose levels somebody measured.
# The paper prints no error of its four figures. Its boards, clocks and sensor are one each; a tenth is our guess.
_MEASURED_SPREAD = 1.1
_LOGIC_SPREAD, _DRAM_SPREAD = ENERGY_SPREAD[0], ENERGY_SPREAD[2]


@dataclass(frozen=True)
class AccessEnergies:
    """Energy of accesses on a GPU at a clock.

    Args:
        joules: Memory level -> joules of an access to 32 bytes.
        spread: Memory level -> standard deviation, as a factor.
        source: Where the figures come from, for people.
        measured: Whether they were measured on a GPU of this name.
    """

    joules: Mapping[str, float]
    spread: Mapping[str, float]
    source: str
    measured: bool

    @classmethod
    def of(cls, gpu: GPU, clock_mhz: float) -> Self:
        """What is known of a GPU, or else the A100's figures scaled by how chip and memory are made.

        On-chip levels scale with the energy of logic by process and with the square of the supply voltage, relative to
        the boost clock; memory by its type, HBM or GDDR, whatever the clock.

        Args:
            gpu: The GPU.
            clock_mhz: Its graphics clock.
        """
        voltage = float(relative_voltage(gpu, clock_mhz)[0]) ** 2
        if gpu.access_energy_j is not None:
            known, logic, dram = gpu.access_energy_j, voltage, 1.0
        else:
            known = _known()
            logic = voltage * process_factor(gpu) / process_factor(find_gpu(_LIKE))
            gddr = "HBM" not in (gpu.memory_type or "HBM")
            dram = PRIOR_ENERGY.gddr_j_per_byte / PRIOR_ENERGY.hbm_j_per_byte if gddr else 1.0
        measured = gpu.access_energy_j is not None
        factors = {level: dram if level == "dram" else logic for level in MEMORY_LEVELS}
        priors = {level: _DRAM_SPREAD if level == "dram" else _LOGIC_SPREAD for level in MEMORY_LEVELS}
        return cls(
            {level: known[level] * factors[level] for level in MEMORY_LEVELS},
            dict.fromkeys(MEMORY_LEVELS, _MEASURED_SPREAD) if measured else priors,
            "measured on a GPU of this kind (its sources say by whom)"
            if measured
            else "the A100's, scaled by process and type of memory (prior)",
            measured,
        )


@cache
def _known() -> Mapping[str, float]:
    known = find_gpu(_LIKE).access_energy_j
    if known is None:
        raise AssertionError(f"the catalogue lacks the access energies of {_LIKE}")
    return known
