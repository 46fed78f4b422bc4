"""Errors of the clock law per octave: prints the numbers in joulecast/predictors/intervals/errors.toml.

    python benchmarks/clock_errors.py

Reads the errors in the model card of zoo/any-gpu/boosting for the A100's networks. Each was measured at several clocks,
and predicted without any measurement of its chip. The error at a clock minus the error at the highest clock of the same
network is the error that the clock law adds.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

CARD = Path(__file__).parents[1] / "zoo/any-gpu/boosting/card.json"
LEVELS = np.arange(1, 40) / 40
LEAST_OCTAVES = 0.15


def main() -> None:
    errors = json.loads(CARD.read_text())["network_errors"]
    by_network = defaultdict(list)
    for label, error in errors.get("nothing", errors).items():
        match = re.fullmatch(r"(.*A100.*) at (\d+) MHz", label)
        if match:
            time, energy = np.log1p(error["time"]), np.log1p(error["energy"])
            by_network[match[1]].append((int(match[2]), time, energy))
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
