"""At which clocks networks need least energy and least EDP, measured: does one clock suit all, as Nicolai's model says?

    python benchmarks/measured_optima.py [--data ../shared/data/energaizer2026]

Nicolai (figures 6.5 to 6.16) predicts least energy at 900 of 1440 MHz and least EDP at 1200 MHz for every network of
the A30, and published no measurement at other clocks. energaizer2026 has twelve sweeps of an A100, of which one waits
for the host at all clocks. For each this prints the best measured clock, what his rule (the same share of the highest
clock) costs more than it, and what the clock costs that joulecast chooses. benchmarks/CLOCKS.md has the last with the
network's name left out.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import joulecast
from joulecast.datasets.importers.energaizer2026 import import_energaizer2026
from joulecast.hardware import find_gpu

ROOT = Path(__file__).resolve().parents[1]
GPU = "A100 PCIe 40GB"
RULES = {"energy": 900 / 1440, "EDP": 1200 / 1440}
LEAST_CLOCKS = 8


def value(shown: Any, quantity: str) -> float:
    """Joules, or joules times seconds, of a measurement or a prediction."""
    joules = shown.energy_j if shown.energy_j else shown.known_power_w * shown.time_s
    return float(joules if quantity == "energy" else joules * shown.time_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "energaizer2026")
    top = float(find_gpu(GPU).boost_clock_mhz)
    sweeps: dict[tuple[Any, ...], dict[float, Any]] = defaultdict(dict)
    for dataset in import_energaizer2026(parser.parse_args().data):
        for m in dataset.usable_networks("inference") if dataset.card.gpu == find_gpu(GPU).name else ():
            sweeps[m.network, tuple(m.input_shape), m.precision][float(m.clock_mhz or top)] = m
    for quantity, rule in RULES.items():
        costs: dict[str, list[float]] = {"rule": [], "ours": []}
        print(f"\n{quantity}: measured best, his rule ({rule:.3f} of the highest clock), ours")
        for (network, shape, precision), measured in sweeps.items():
            if len(measured) < LEAST_CLOCKS:
                continue
            by_clock = {clock: value(m, quantity) for clock, m in measured.items()}
            best = min(by_clock, key=by_clock.__getitem__)
            his = min(by_clock, key=lambda clock: abs(clock - rule * top))
            predicted = {c: joulecast.predict(network, shape, GPU, clock=c, precision=precision) for c in by_clock}
            ours = min(predicted, key=lambda clock: value(predicted[clock], quantity))
            extra = {"rule": by_clock[his] / by_clock[best] - 1, "ours": by_clock[ours] / by_clock[best] - 1}
            for name, cost in extra.items():
                costs[name].append(cost)
            slower = max(measured.values(), key=lambda m: m.time_s).time_s / min(m.time_s for m in measured.values())
            print(
                f"  {network:18} {'x'.join(map(str, shape)):8} {precision:8} {best:5.0f} MHz ({best / top:.2f})"
                f"   {his:5.0f} MHz {extra['rule']:+6.1%}   {ours:5.0f} MHz {extra['ours']:+6.1%}"
                f"   slowest over fastest {slower:.2f}"
            )
        for name, each in costs.items():
            print(f"  {name}: {sum(each) / len(each):.2%} more than the best in the mean, {max(each):.1%} at worst")


if __name__ == "__main__":
    main()
