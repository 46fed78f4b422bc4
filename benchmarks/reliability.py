"""How reliable accounting is, by SMARAGDINE's method (Babakol and Liu, "Tensor-Aware Energy Accounting", ICSE 2024).

    python benchmarks/reliability.py resnet18 2,3,64,64 --training [--pairs 100] [--picture FOLDER/matrices.svg]

Runs a model several times under the profiler, and correlates the joules of its modules, repeated layers added up,
between runs that are sampled with different periods (ASSS), between runs of different lengths (ASSW), and between equal
runs. Where no energy counter can be read, the power of the operators that ran is simulated: then the true joules are
known, and so are the errors. The overhead of the profiler comes from many short pairs of blocks with it and without it.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from charts import CHART_STYLE
from scipy.stats import binom

from joulecast.accounting import Events, sweep
from joulecast.accounting.account import meter_of, recording_of
from joulecast.accounting.shares import NO_MODULE, Counter, counters_of, swept
from joulecast.accounting.steps import Steps, profiled, steps_of
from joulecast.arrays import FloatArray
from joulecast.energy.node import starred
from joulecast.extraction.models.named_models import build_to_run
from joulecast.metering.energy_curve import EnergyCurve
from joulecast.metering.recording import DeviceInfo
from joulecast.profiling.devices import find_device
from joulecast.profiling.timing import clock_of
from joulecast.rendering.plots import INK, saved
from joulecast.units import si

PUBLISHED = {
    "ASSS": "0.90 to 0.94",
    "ASSW": "0.97 to 0.99",
    "overhead in time": "-0.05 +- 0.12 %",
    "overhead in energy": "0.47 +- 1.10 %",
}
"""SMARAGDINE's figures, of BERT on a GPU in TensorFlow."""

PERIODS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Sampling periods that are compared; counters update every 10 to 100 ms."""

LENGTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Lengths as shares of the longest run: 5 to 25 iterations of 25. ASSW is the correlation of each with the first."""

ITERATIONS = 25
STATIC_W = 20.0
"""Watts of a simulated device on which nothing runs."""

_LEAST_W, _MOST_W = 10.0, 60.0  # Above idle: about that of one core of a server's CPU, from copies to products.
_LARGE = 0.05  # Least share of the joules of modules whose errors are reported.
_INTERVAL_S = 0.005
_BLOCK = 3  # Iterations of a block, after one that is not timed: the profiler is slow at first.

Summary = Mapping[tuple[str, str], float]
"""Phase and path of a module, with repeated layers added up -> joules."""


@dataclass(frozen=True)
class KnownPower:
    """A device with simulated power.

    Args:
        energy_j: True joules of each event, shape (events,): its own above idle, and its share of the idle joules. Zero
            for events of other devices.
    """

    counter: Counter
    energy_j: FloatArray


def operator_power_w(operation: str) -> float:
    """Simulated watts of an operator above idle: an arbitrary value, always the same for the same name, so that its
    joules do not follow from its time alone.
    """
    return _LEAST_W + (_MOST_W - _LEAST_W) * (zlib.crc32(operation.encode()) % 1000) / 999


def known_power(
    events: Events,
    device: str = "cpu",
    power_w: Callable[[str], float] = operator_power_w,
    static_w: float = STATIC_W,
) -> KnownPower:
    """Simulate the power of a device on which events run.

    Args:
        power_w: Operator -> its watts above idle.
    """
    mine = events.on(device)
    start_s, end_s = events.start_s[mine], events.end_s[mine]
    above_w = np.array([power_w(place.operation) for place in events.places])[events.place[mine]]
    edges = np.unique(np.concatenate([start_s, end_s, events.window_s]))
    steps = np.zeros(len(edges))
    np.add.at(steps, np.searchsorted(edges, start_s), above_w)
    np.add.at(steps, np.searchsorted(edges, end_s), -above_w)
    watts = static_w + np.maximum(np.cumsum(steps)[:-1], 0.0)
    curve = EnergyCurve(edges, np.concatenate([[0.0], np.cumsum(watts * np.diff(edges))]), np.zeros(len(edges)))
    info = DeviceInfo(device if device.startswith("gpu") else "cpu0", "simulated", method="modelled", idle_w=static_w)
    joules = np.zeros(len(events))
    joules[mine] = above_w * (end_s - start_s) + static_w * sweep(start_s, end_s).time_s
    return KnownPower(Counter(info, curve), joules)


def sampled(counter: Counter, period_s: float) -> Counter:
    """The readings of a counter that is updated periodically, which say nothing about the time between two updates."""
    curve = counter.curve
    updates = np.arange(curve.time_s[0], curve.time_s[-1], period_s)
    time_s = np.unique(np.append(updates, curve.time_s[-1]))
    joules, unknown_s = (np.interp(time_s, curve.time_s, values) for values in (curve.energy_j, curve.unknown_s))
    return replace(counter, curve=EnergyCurve(time_s, joules, unknown_s, period_s))


@dataclass(frozen=True)
class Experiment:
    """A run with the best known energy over time.

    Args:
        known_j: True joules of each event if power is simulated, shape (events,); None if it was measured.
    """

    events: Events
    counters: tuple[Counter, ...]
    known_j: FloatArray | None = None


def experiment(steps: Steps, iterations: int, sensors: Collection[str] | None = None) -> Experiment:
    """Run a model under the profiler, with its counters or, where there is none, with simulated power."""
    meter = meter_of(sensors, _INTERVAL_S)
    with meter or nullcontext():
        events = steps.profiled(iterations)
    recording = recording_of(meter)
    counters = () if recording is None else counters_of(recording, events.origin_ns)
    if counters and all(counter.device.method == "measured" for counter in counters):
        return Experiment(events, counters)
    known = [known_power(events, device) for device in events.devices]
    return Experiment(events, tuple(each.counter for each in known), np.sum([each.energy_j for each in known], axis=0))


def summary(run: Experiment, period_s: float, length: float = 1.0, *, operators: bool = False) -> Summary:
    """Joules by phase and module, as a sensor with this period would measure them in the first part of a run.

    Args:
        length: Share of the run that is used.
        operators: Whether the operators of a module stay apart.
    """
    start_s, end_s = run.events.window_s
    events = replace(run.events, windows=((start_s, start_s + length * (end_s - start_s)),))
    found: dict[tuple[str, str], float] = {}
    for row in swept(events, [sampled(counter, period_s) for counter in run.counters]).rows:
        key = row.phase, starred(row.path) + (f" {row.operation}" if operators else "")
        found[key] = found.get(key, 0.0) + row.share.energy_j
    return found


def known_summary(run: Experiment) -> Summary:
    """The true joules of a run with simulated power, by phase and module."""
    found: dict[tuple[str, str], float] = {}
    places = run.events.places
    for place, joules in zip(places, np.bincount(run.events.place, run.known_j, len(places)).tolist(), strict=True):
        key = place.phase, starred(NO_MODULE if place.path is None else place.path)
        found[key] = found.get(key, 0.0) + joules
    return found


def largest_error(run: Experiment, period_s: float) -> float:
    """Largest relative error of a module with over 5 % of the true joules; 0 if there is none."""
    accounted, known = summary(run, period_s), known_summary(run)
    large = {key: joules for key, joules in known.items() if joules > _LARGE * sum(known.values())}
    return max((abs(accounted.get(key, 0.0) / joules - 1) for key, joules in large.items()), default=0.0)


def correlations(summaries: Sequence[Summary]) -> FloatArray:
    """Pearson's correlation of each two summaries over all modules, shape (summaries, summaries)."""
    keys = sorted(set().union(*summaries))
    with np.errstate(invalid="ignore", divide="ignore"):  # Not a number, where all modules have the same joules.
        matrix: FloatArray = np.corrcoef([[found.get(key, 0.0) for key in keys] for found in summaries])
    np.fill_diagonal(matrix, 1.0)
    return matrix


@dataclass(frozen=True)
class Overhead:
    """Relative increase of time, and of energy where a counter can be read, in each pair of blocks."""

    time: list[float] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)


def overhead(steps: Steps, pairs: int, sensors: Collection[str] | None = None) -> Overhead:
    """Compare short blocks with and without the profiler; which comes first alternates, so that a drift cancels.

    On the CPU with one thread, the clock is the CPU time of this process, which other programs do not lengthen.
    """
    found = Overhead()
    for pair in range(pairs):
        blocks: dict[bool, tuple[float, float | None]] = {}
        for profile in (pair % 2 == 1, pair % 2 == 0):
            with profiled(steps.module) if profile else nullcontext():
                steps.run()
                blocks[profile] = _block(steps, sensors)
        (plain_s, plain_j), (profiled_s, profiled_j) = blocks[False], blocks[True]
        found.time.append(profiled_s / plain_s - 1)
        if plain_j and profiled_j:
            found.energy.append(profiled_j / plain_j - 1)
    return found


def _block(steps: Steps, sensors: Collection[str] | None) -> tuple[float, float | None]:
    """Seconds and joules of a block of iterations; None instead of joules that are not measured."""
    clock = clock_of(next(steps.module.parameters()).device)
    meter = meter_of(sensors)
    with meter or nullcontext():
        start_s = clock()
        steps.looped(meter, _BLOCK)
        seconds = clock() - start_s
    result = meter.result() if meter is not None and meter.measures else None
    measured = result is not None and result.source == "measured"
    return seconds, result.tree().at("loop").total.energy_j if result is not None and measured else None


def matrices(runs: Sequence[Experiment]) -> dict[str, tuple[FloatArray, list[str]]]:
    """Title -> correlations, and what each row is. Each period and length takes another run than its neighbours."""
    finest_s = PERIODS_S[0]

    def run(number: int) -> Experiment:
        return runs[number % len(runs)]

    periods, shares = list(enumerate(PERIODS_S)), list(enumerate(LENGTHS))
    by_period, of_operators = (
        correlations([summary(run(i), period_s, operators=operators) for i, period_s in periods])
        for operators in (False, True)
    )
    names = [si(period_s, "s") for period_s in PERIODS_S]
    lengths = [f"{share * runs[0].events.iterations:.0f}" for share in LENGTHS]
    return {
        "sampling periods": (by_period, names),
        "sampling periods, of operators": (of_operators, names),
        "iterations": (correlations([summary(run(i), finest_s, share) for i, share in shares]), lengths),
        "equal runs": (
            correlations([summary(each, finest_s) for each in runs]),
            [str(i + 1) for i in range(len(runs))],
        ),
    }


def _range(values: FloatArray) -> str:
    return f"{values.min():.3f} to {values.max():.3f}"


def _median(values: Sequence[float]) -> str:
    """The middle of all pairs with its 95 % interval, which assumes no distribution, as programs disturb some pairs."""
    if len(values) < 2:
        return "not measured"
    ordered, rank = np.sort(values), max(1, int(binom.ppf(0.025, len(values), 0.5)))
    low, high = ordered[rank - 1], ordered[-rank]
    return f"{100 * np.median(values):+.2f} % ({100 * low:+.2f} to {100 * high:+.2f} %)"


def report(title: str, runs: Sequence[Experiment], cost: Overhead) -> Iterator[str]:
    """The lines of the table beside SMARAGDINE's."""
    simulated = runs[0].known_j is not None
    found, iterations = matrices(runs), runs[0].events.iterations
    upper = {name: matrix[np.triu_indices(len(matrix), 1)] for name, (matrix, _) in found.items()}
    first, *longer = found["iterations"][1]
    power = "simulated" if simulated else "measured"
    yield f"{title}: {len(runs)} runs of {iterations} iterations, {power} power, {len(cost.time)} pairs of blocks\n"
    yield "| | here | SMARAGDINE |\n| --- | --- | --- |"
    yield f"| ASSS: correlation over sampling periods | {_range(upper['sampling periods'])} | {PUBLISHED['ASSS']} |"
    yield f"| the same of operators instead of modules | {_range(upper['sampling periods, of operators'])} | |"
    assw = _range(found["iterations"][0][0, 1:])
    yield f"| ASSW: {', '.join(longer)} iterations against {first} | {assw} | {PUBLISHED['ASSW']} |"
    yield f"| correlation of equal runs | {_range(upper['equal runs'])} | |"
    yield f"| overhead in time of the profiler | {_median(cost.time)} | {PUBLISHED['overhead in time']} |"
    yield f"| overhead in energy | {_median(cost.energy)} | {PUBLISHED['overhead in energy']} |"
    for number, period_s in enumerate(PERIODS_S if simulated else ()):
        error = largest_error(runs[number % len(runs)], period_s)
        yield f"| largest error of a module of over 5 %, sampled every {si(period_s, 's')} | {100 * error:.1f} % | |"


def draw(runs: Sequence[Experiment], path: Path) -> None:
    """Draw the correlations of modules into a PNG or SVG file: a matrix each."""
    shown = {name: each for name, each in matrices(runs).items() if "operators" not in name}
    with saved(path, 1, len(shown), {**CHART_STYLE, "axes.grid": False}, figsize=(13.0, 4.6)) as axes:
        for axis, (name, (matrix, labels)) in zip(axes, shown.items(), strict=True):
            axis.imshow(matrix, vmin=0.8, vmax=1.0, cmap="Blues")
            for (row, column), value in np.ndenumerate(matrix):
                colour = "white" if value > 0.9 else INK
                axis.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=8, color=colour)
            axis.set_xticks(range(len(labels)), labels, rotation=45)
            axis.set_yticks(range(len(labels)), labels)
            axis.set_title(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="its name, as joulecast account takes it")
    parser.add_argument("shape", help="of its input, batch first")
    parser.add_argument("--training", action="store_true", help="with the backward pass")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--experiments", type=int, default=4, help="equal runs")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of each run")
    parser.add_argument("--pairs", type=int, default=100, help="blocks with and without the profiler")
    parser.add_argument("--picture", type=Path, help="draw the correlations into this PNG or SVG file")
    arguments = parser.parse_args()
    shape = tuple(map(int, arguments.shape.split(",")))
    mode = "training" if arguments.training else "inference"
    model: Any = build_to_run(arguments.model)
    with steps_of(model, shape, mode, find_device(arguments.device), None) as steps:
        for _ in range(2):
            steps.run()
        runs = [experiment(steps, arguments.iterations) for _ in range(arguments.experiments)]
        print("\n".join(report(steps.title, runs, overhead(steps, arguments.pairs))))
    if arguments.picture is not None:
        draw(runs, arguments.picture)


if __name__ == "__main__":
    main()
