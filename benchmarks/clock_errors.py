"""Errors of the clock law per octave: prints the numbers in joulecast/predictors/intervals/errors.toml.

    python benchmarks/clock_errors.py

Reads the errors in the model card of zoo/any-gpu/forest for the A100's networks. Each was measured at several clocks,
and predicted without any measurement of its chip. The error at a clock minus the error at the highest clock of the same
network is the error that the clock law adds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from joulecast.predictors.evaluation.any_gpu import NOTHING_KNOWN

CARD = Path(__file__).parents[1] / "zoo/any-gpu/forest/card.json"
LEVELS = np.arange(1, 40) / 40
LEAST_OCTAVES = 0.15


def main() -> None:
    by_network = defaultdict(list)
    for case in json.loads(CARD.read_text())["networks"]:
        if "A100" in case["where"] and case["split"].startswith(NOTHING_KNOWN) and "clock_mhz" in case:
            time, energy = np.log1p(case["time"]), np.log1p(case["energy"])
            network = tuple(case[name] for name in ("where", "network", "input", "precision", "mode"))
            by_network[network].append((round(case["clock_mhz"]), time, energy))
    added = defaultdict(list)
    for points in by_network.values():
        *lower, (top, top_time, top_energy) = sorted(points)
        for clock, time, energy in lower:
            octaves = np.log2(top / clock)
            if octaves >= LEAST_OCTAVES:
                by_time, by_energy = (time - top_time) / octaves, (energy - top_energy) / octaves
                for name, value in {
                    "time": by_time,
                    "power": by_energy - by_time,
                    "energy": by_energy,
                    "edp": by_time + by_energy,
                }.items():
                    added[name].append(abs(value))
    for name, values in added.items():
        print(f"# {len(values)} pairs of clocks")
        print(f"{name}: {', '.join(f'{v:.3g}' for v in np.quantile(values, LEVELS, method='higher'))}")


if __name__ == "__main__":
    main()
