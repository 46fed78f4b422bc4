"""The energy of an access to 32 bytes at each memory level of a GPU: measured on this GPU, or a prior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

from ...hardware import GPU, find_gpu
from ...hardware.gpu import MEMORY_LEVELS
from .energy import ENERGY_SPREAD, PRIOR_ENERGY, process_factor
from .voltage import relative_voltage

ACCESS_BYTES = 32
"""Bytes of a sector, the smallest unit that caches and DRAM of NVIDIA GPUs transfer."""

_LIKE = "NVIDIA A100-PCIE-40GB"  # The only GPU with published energies of its levels (Delestrac et al., ASAP 2024).
# The paper prints no error of its four figures, and it used one board, one clock and one sensor. A tenth is our guess.
_MEASURED_SPREAD = 1.1
_LOGIC_SPREAD, _DRAM_SPREAD = ENERGY_SPREAD[0], ENERGY_SPREAD[2]


@dataclass(frozen=True)
class AccessEnergies:
    """Energy of accesses on a GPU at a clock.

    Args:
        joules: Memory level -> joules of an access to 32 bytes.
        spread: Memory level -> standard deviation, as a factor.
        source: Source of the figures, as a sentence.
        measured: Whether they were measured on a GPU of this name.
    """

    joules: Mapping[str, float]
    spread: Mapping[str, float]
    source: str
    measured: bool

    @classmethod
    def of(cls, gpu: GPU, clock_mhz: float) -> Self:
        """The energies of a GPU at a clock; those of the A100, scaled, if none were measured on it.

        The levels on the chip scale with the manufacturing process and with the square of the supply voltage, which
        follows the clock. DRAM scales with its type, HBM or GDDR; it has a clock and a voltage of its own.
        """
        voltage = float(relative_voltage(gpu, clock_mhz)[0]) ** 2
        if gpu.access_energy_j is not None:
            known, logic, dram = gpu.access_energy_j, voltage, 1.0
        else:
            known = _known()
            logic = voltage * process_factor(gpu) / process_factor(find_gpu(_LIKE))
            dram = 1.0 if gpu.has_hbm else PRIOR_ENERGY.gddr_j_per_byte / PRIOR_ENERGY.hbm_j_per_byte
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
