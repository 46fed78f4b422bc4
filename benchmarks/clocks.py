"""Predictions over clocks: errors at the clocks of the A100, the regret of choosing a clock by them, and A30's optima.

    python benchmarks/clocks.py --data build/datasets

Writes benchmarks/CLOCKS.md. Operations are learned from all GPUs. Half precision, energies and host cost are learned
from networks of other names only. This takes about ten minutes on one core, mostly for fitting the trees.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import joulecast
from joulecast.datasets import Dataset, load
from joulecast.extraction import network_of
from joulecast.hardware import find_gpu
from joulecast.operations.operation import MODES
from joulecast.predictors.contract import Networks
from joulecast.predictors.evaluation.any_gpu import fit_hosts
from joulecast.predictors.fitting.fit import fit_operations, with_energies
from joulecast.predictors.fitting.forms import load_recipe
from joulecast.predictors.measured import device_rows
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.zoo import find_predictor

OUT = Path(__file__).with_name("CLOCKS.md")
RECIPE = Path(__file__).parents[1] / "predictors" / "any-gpu.toml"
SWEPT = "NVIDIA A100-PCIE-40GB"
A30_CLOCKS_MHZ = (210, 300, 600, 900, 1200, 1440)
LEAST_CLOCKS = 3  # A sweep with fewer clocks leaves nothing to choose.


class Row(NamedTuple):
    """A measured network at a clock, and its prediction by a predictor trained without networks of its name."""

    network: str
    precision: str
    shape: tuple[int, ...]
    clock_mhz: float
    time_s: float
    energy_j: float
    predicted_s: float
    predicted_j: float

    @property
    def errors(self) -> tuple[float, float, float]:
        """Relative errors of time, energy and power."""
        time, energy = self.predicted_s / self.time_s - 1, self.predicted_j / self.energy_j - 1
        return time, energy, (1 + energy) / (1 + time) - 1


def networks_of(datasets: Sequence[Dataset]) -> Networks:
    """All measured networks, each with its GPU, its measurement and its operations."""
    return [
        (
            find_gpu(data.card.gpu),
            m,
            m.operations or network_of(m.network, m.input_shape, mode=mode, precision=m.precision),
        )
        for data in datasets
        for mode in MODES
        for m in data.usable_networks(mode)
    ]


def left_out(datasets: Sequence[Dataset], networks: Networks) -> Iterator[Row]:
    """Predict the networks of the A100 at their clocks, each without the networks of its name."""
    recipe = load_recipe(RECIPE)
    rows = [row for data in datasets for row in device_rows(data)]
    learned = fit_operations(datasets, rows, recipe)
    mine = [n for n in networks if n[0].name == SWEPT]
    for name in dict.fromkeys(m.network for _, m, _ in mine):
        others = [n for n in networks if n[1].network != name]
        without = with_energies(learned, rows, others)
        hosts = fit_hosts(SharedByAll(without), others)
        for gpu, m, network in (n for n in mine if n[1].network == name):
            predictor = NetworkPredictor("left out", SharedByAll(without).on(gpu, m.mode), hosts[m.mode])
            predicted = predictor.predict(network, m.clock_mhz)
            yield Row(
                name,
                m.precision,
                m.input_shape,
                m.clock_mhz or float(gpu.boost_clock_mhz),
                m.time_s,
                m.energy_j,
                predicted.time_s,
                predicted.energy_j,
            )


def error_table(rows: Sequence[Row]) -> Iterator[str]:
    """Mean absolute errors by network and precision, and over all."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.network, row.precision].append(row)
        groups["all", row.precision].append(row)
        groups["all", "both"].append(row)
    yield "| network | precision | measured | time | energy | power |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for (network, precision), group in sorted(groups.items(), key=lambda item: (item[0][0] == "all", item[0])):
        cells = [f"{100 * value:.1f} %" for value in np.abs([row.errors for row in group]).mean(axis=0)]
        yield f"| {network} | {precision} | {len(group)} | {' | '.join(cells)} |"


def regrets(rows: Sequence[Row]) -> list[float]:
    """Relative extra energy of the clock that the prediction chooses compared with the best clock, for each sweep."""
    sweeps: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        sweeps[row.network, row.precision, row.shape].append(row)
    return [
        min(sweep, key=lambda row: row.predicted_j).energy_j / min(row.energy_j for row in sweep) - 1
        for sweep in sweeps.values()
        if len({round(row.clock_mhz) for row in sweep}) >= LEAST_CLOCKS
    ]


def optima(datasets: Sequence[Dataset]) -> list[tuple[bool, bool]]:
    """Whether each of the A30's networks has its least energy at 900 MHz, and its least EDP at 1200 MHz."""
    optima = []
    for gpu, m, network in networks_of(datasets):
        predictor = find_predictor(gpu, m.mode)
        at = [predictor.predict(network, clock) for clock in A30_CLOCKS_MHZ]
        least, best = min(at, key=lambda p: p.energy_j), min(at, key=lambda p: p.edp_js)
        optima.append((least.clock_mhz == 900, best.clock_mhz == 1200))
    return optima


def main() -> None:
    """Compute the errors, and write CLOCKS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    arguments = parser.parse_args()
    loaded = [load(card.parent) for card in sorted(arguments.data.glob("**/card.json"))]
    # The predictor that ships was trained on NVIDIA's GPUs alone.
    datasets = [data for data in loaded if find_gpu(data.card.gpu).is_nvidia]
    rows = list(left_out(datasets, networks_of(datasets)))
    extra = regrets(rows)
    a30 = optima([data for data in datasets if find_gpu(data.card.gpu).slug == "a30"])
    lines = [
        "# Clocks",
        "",
        f"Made by `python benchmarks/clocks.py` (joulecast {joulecast.__version__}); do not edit.",
        "",
        "## A100, every clock, networks left out by name",
        "",
        "Mean absolute errors. Operations were learned from all GPUs; half precision, energies and host cost from the",
        "networks of other names on all GPUs. The tiles of half precision in `least_times.py` were chosen with these",
        "networks in view. Goals: 6 % time, 6 % energy, 5 % power.",
        "",
        *error_table(rows),
        "",
        f"Choosing the clock of least energy among those measured, over {len(extra)} sweeps: "
        f"{100 * np.mean(extra):.1f} % more energy than the best in the mean, {100 * max(extra):.1f} % at worst "
        "(goals: 1.5 %, 4 %).",
        "",
        "## A30, published optima",
        "",
        f"Among {', '.join(map(str, A30_CLOCKS_MHZ))} MHz, by the A30's own predictor, {len(a30)} networks:",
        f"least energy at 900 MHz for {sum(least for least, _ in a30)},",
        f"least energy-delay product at 1200 MHz for {sum(best for _, best in a30)} (goal: {0.9 * len(a30):.0f}).",
        "No constant was fitted to these optima, but they were",
        "known when the clock law was written.",
        "",
    ]
    OUT.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
