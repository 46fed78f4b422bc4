"""Measured joules by memory level, from traffic that was counted (Delestrac et al., ASAP 2024).

    joulecast account resnet50 32,3,224,224 --device cuda --training --json > account.json
    ncu --csv --print-units base --metrics NAMES python one_iteration.py > counters.csv
    python benchmarks/measured_levels.py account.json counters.csv "A100 SXM 80GB" --static-power 60

NAMES are those of `joulecast.hardware.ncu`. No such counters of a real GPU were at hand.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulecast.energy import EnergyTree
from joulecast.errors import InputError, JoulecastError
from joulecast.hardware import GPU, find_gpu
from joulecast.hardware.gpu import MEMORY_LEVELS
from joulecast.hardware.ncu import Traffic, read_counters
from joulecast.predictors.networks.memory_levels import STATIC, closed
from joulecast.predictors.physics.memory_traffic import ACCESS_BYTES, AccessEnergies
from joulecast.units import si

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
    energy_j: float, static_j: float, counted: Traffic, gpu: GPU, clock_mhz: float, iterations: float = 1
) -> MeasuredLevels:
    """Divide the measured joules of an iteration by memory level.

    Raises InputError: there are no joules to divide. Or the counted traffic costs far more than was measured, so it is
    of another program or another number of iterations.

    Args:
        static_j: The part of `energy_j` that the board draws whether anything runs or not.
        iterations: Number of iterations that ran while the traffic was counted.
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
    traffic = {level: None if v is None else v / iterations for level, v in counted.items()}
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


def levels_of(
    account: Mapping[str, Any], counted: Traffic, gpu: GPU, clock_mhz: float, static_w: float, iterations: float
) -> MeasuredLevels:
    """The joules of the GPUs of what `joulecast account --json` printed, by memory level."""
    total = EnergyTree.from_dict(account["tree"]).total
    joules = sum(total.on(device).energy_j for device in total.devices if device.rpartition("/")[2].startswith("gpu"))
    return measured_levels(joules, static_w * account["duration_s"], counted, gpu, clock_mhz, iterations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("account", type=Path)
    parser.add_argument("counters", type=Path)
    parser.add_argument("gpu")
    parser.add_argument("--clock", type=float, help="MHz that the GPU held; its boost clock by default")
    parser.add_argument("--static-power", type=float, help="watts of the waiting board; the catalogue's by default")
    parser.add_argument("--iterations", type=float, default=1, help="that ran while the traffic was counted")
    given = parser.parse_args()
    try:
        gpu = find_gpu(given.gpu)
        static_w = (gpu.idle_power_w or 0.0) if given.static_power is None else given.static_power
        account, clock_mhz = json.loads(given.account.read_text("utf-8")), given.clock or gpu.boost_clock_mhz
        print(levels_of(account, read_counters(given.counters), gpu, clock_mhz, static_w, given.iterations))
    except JoulecastError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
