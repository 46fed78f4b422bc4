"""Evaluation of the reliability of accounting, with the method of SMARAGDINE.

ASSS is the correlation of summarised energies between runs that were sampled with different periods, ASSW that between
runs of different lengths (Babakol and Liu, "Tensor-Aware Energy Accounting", ICSE 2024). In addition there are
the correlation between equal runs, the overhead of profiling, and the error where the true power is known.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..arrays import FloatArray
from ..energy.node import starred
from ..errors import InputError
from ..metering.energy_curve import EnergyCurve
from ..metering.recording import DeviceInfo
from ..rendering.answers import Plain
from ..rendering.notebook import checked_path
from ..rendering.plots import CHART_STYLE, INK, saved
from ..units import si
from .events import Events
from .shares import NO_MODULE, Counter, swept
from .sweep import sweep

# Simulates the power of events, so that the true joules of each are known, and sensors that sample this power.
#
# Every operator has a power of its own above that of the idle device, so its joules do not follow from its time alone.

STATIC_W = 20.0
"""Power in watts of a simulated device on which nothing runs."""

# Range of the power above idle: about that of one core of a server's CPU, from copies to matrix products.
_LEAST_W, _MOST_W = 10.0, 60.0


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
    """Simulated watts of an operator above idle: an arbitrary value, which is always the same for the same name."""
    return _LEAST_W + (_MOST_W - _LEAST_W) * (zlib.crc32(operation.encode()) % 1000) / 999


def known_power(
    events: Events, device: str = "cpu", watts: Mapping[str, float] | None = None, static_w: float = STATIC_W
) -> KnownPower:
    """Simulate the power of a device on which events run."""
    mine = events.on(device)
    start_s, end_s = events.start_s[mine], events.end_s[mine]
    by_place = np.array([
        operator_power_w(place.operation) if watts is None else watts[place.operation] for place in events.places
    ])  # fmt: skip
    above_w = by_place[events.place[mine]]
    window_s = events.window_s
    edges = np.unique(np.concatenate([start_s, end_s, window_s]))
    steps = np.zeros(len(edges))
    np.add.at(steps, np.searchsorted(edges, start_s), above_w)
    np.add.at(steps, np.searchsorted(edges, end_s), -above_w)
    power_w = static_w + np.maximum(np.cumsum(steps)[:-1], 0.0)
    energy_j = np.concatenate([[0.0], np.cumsum(power_w * np.diff(edges))])
    curve = EnergyCurve(edges, energy_j, np.zeros(len(edges)))
    info = DeviceInfo(device if device.startswith("gpu") else "cpu0", "simulated", method="modelled", idle_w=static_w)
    joules = np.zeros(len(events))
    joules[mine] = above_w * (end_s - start_s) + static_w * sweep(start_s, end_s).time_s
    return KnownPower(Counter(info, curve), joules)


def sampled(counter: Counter, period_s: float, phase: float = 0.0) -> Counter:
    """The readings of a counter that is updated periodically, which say nothing about the time between two updates.

    Args:
        phase: Share of a period that passes before the first update, 0 to 1.
    """
    curve = counter.curve
    first_s, last_s = float(curve.time_s[0]), float(curve.time_s[-1])
    updates = np.arange(first_s + phase * period_s, last_s, period_s)
    time_s = np.unique(np.concatenate([[first_s], updates, [last_s]]))
    energy_j = np.interp(time_s, curve.time_s, curve.energy_j)
    unknown_s = np.interp(time_s, curve.time_s, curve.unknown_s)
    return replace(counter, curve=EnergyCurve(time_s, energy_j, unknown_s, period_s))


PERIODS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Sampling periods that are compared; counters update every 10 to 100 ms."""

ITERATIONS = 25
"""Iterations of the longest run."""

LENGTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Run lengths that are compared, as shares of the longest: 5, 10, 15, 20 and 25 iterations of 25. SMARAGDINE's ASSW is
the correlation of each of them with the shortest."""

PUBLISHED: Mapping[str, str] = {
    "ASSS": "0.90 to 0.94",
    "ASSW": "0.97 to 0.99",
    "overhead in time": "-0.05 +- 0.12 %",
    "overhead in energy": "0.47 +- 1.10 %",
}
"""SMARAGDINE's figures, of BERT on a GPU in TensorFlow."""

_PALEST = 0.8  # Correlation of the palest colour; the lowest correlation, if that is smaller.
_LARGE = 0.05  # Least share of the energy of modules whose errors are reported.

Summary = Mapping[tuple[str, str], float]
"""Phase and path of a module, with repeated layers added up -> joules."""


@dataclass(frozen=True)
class Experiment:
    """A run with the best known energy over time.

    Args:
        known_j: True joules of each event if power is simulated, shape (events,); None if it was measured.
    """

    events: Events
    counters: tuple[Counter, ...]
    known_j: FloatArray | None = None


@dataclass(frozen=True)
class Overhead:
    """Overhead of profiling.

    Args:
        time: Relative increase of time, such as 0.1 for 10 %; mean over pairs of blocks.
        energy: Relative increase of energy; None if energy was not measured.
    """

    time: float
    time_std: float
    energy: float | None = None
    energy_std: float | None = None


@dataclass(frozen=True)
class Evaluation(Plain):
    """Reliability of the accounting of a model.

    Args:
        by_period: Correlations between runs sampled with each two periods, shape (periods, periods).
        by_period_of_operators: The same of single operators of modules instead of whole modules.
        by_length: Correlations between runs of each two lengths, shape (lengths, lengths); `assw` is its first row.
        by_experiment: Correlations between each two equal runs, shape (experiments, experiments).
        errors: Sampling period -> largest relative error of a module with over 5 % of the joules; empty where the truth
            is not known.
    """

    title: str
    power: Literal["measured", "simulated"]
    experiments: int
    iterations: int
    periods_s: tuple[float, ...]
    by_period: FloatArray
    by_period_of_operators: FloatArray
    lengths_s: tuple[float, ...]
    by_length: FloatArray
    by_experiment: FloatArray
    errors: Mapping[float, float]
    overhead: Overhead | None = None

    @property
    def assw(self) -> FloatArray:
        """Correlation of each longer run with the shortest, shape (lengths - 1,)."""
        return self.by_length[0, 1:]

    def save(self, path: str | Path) -> Path:
        """Draw the correlations into a PNG or SVG file: three matrices side by side.

        Raises InputError: the file is neither, or its folder does not exist. Raises MissingDependencyError: matplotlib
        is not installed.
        """
        path = checked_path(path, [".png", ".svg"], "the plot of correlations")
        panels = [
            (f"Sampling periods (ASSS; published {PUBLISHED['ASSS']})", self.by_period, self.periods_s),
            (f"Run lengths (ASSW: first row; published {PUBLISHED['ASSW']})", self.by_length, self.lengths_s),
            ("Equal runs", self.by_experiment, range(1, self.experiments + 1)),
        ]
        known = np.concatenate([matrix[np.isfinite(matrix)] for _, matrix, _ in panels])
        least = min(_PALEST, float(known.min()))
        with saved(path, 1, 3, {**CHART_STYLE, "axes.grid": False}, figsize=(13.0, 4.6)) as axes:
            for axis, (title, matrix, of) in zip(axes, panels, strict=True):
                names = [si(value, "s") if matrix is not self.by_experiment else str(value) for value in of]
                drawn = axis.imshow(matrix, vmin=least, vmax=1.0, cmap="Blues")
                for (row, column), value in np.ndenumerate(matrix):
                    colour = "white" if value > (least + 1) / 2 else INK
                    text = "-" if np.isnan(value) else f"{value:.3f}"
                    axis.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
                axis.set_xticks(range(len(names)), names, rotation=45)
                axis.set_yticks(range(len(names)), names)
                axis.set_title(title)
            figure = axes[0].figure
            figure.colorbar(drawn, ax=axes, shrink=0.8, label="Pearson's correlation of the joules of modules")
            figure.suptitle(f"{self.title}, {self.power} power", x=0.01, ha="left", fontsize=11)
        return path

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain lists and dictionaries; quantities in SI units."""
        return {
            "title": self.title,
            "power": self.power,
            "experiments": self.experiments,
            "iterations": self.iterations,
            "asss": {"periods_s": list(self.periods_s), "pearson": self.by_period.tolist()},
            "asss_of_operators": self.by_period_of_operators.tolist(),
            "assw": {"lengths_s": list(self.lengths_s), "pearson": self.by_length.tolist()},
            "stability": {"pearson": self.by_experiment.tolist()},
            "errors": {str(period_s): error for period_s, error in self.errors.items()},
            "overhead": None if self.overhead is None else vars(self.overhead),
            "published": dict(PUBLISHED),
        }


def evaluate(
    title: str,
    experiments: Sequence[Experiment],
    *,
    periods_s: Sequence[float] = PERIODS_S,
    lengths: Sequence[float] = LENGTHS,
    overhead: Overhead | None = None,
) -> Evaluation:
    """Account for equal runs, sampled with several periods and cut to several lengths, and compare.

    Each period and each length takes another run than its neighbours, where there are several. Raises InputError: there
    are fewer than two runs, or a period or a length is out of range.

    Args:
        lengths: Run lengths as shares of the whole run, above 0 and up to 1.
    """
    if len(experiments) < 2:
        raise InputError(
            "there are too few runs to compare with each other",
            given=len(experiments),
            allowed="2 or more",
            hint="run the model again in the same way",
        )
    if not all(period_s > 0 for period_s in periods_s) or not all(0 < length <= 1 for length in lengths):
        raise InputError(
            "a sampling period or a run length is out of range",
            given=f"periods {periods_s}, lengths {lengths}",
            allowed="periods above 0 s, lengths above 0 and up to 1",
            hint="use the defaults",
        )
    finest_s = min(periods_s)

    def run(i: int) -> Experiment:
        return experiments[i % len(experiments)]

    by_period = [summary(run(i), period_s) for i, period_s in enumerate(periods_s)]
    of_operators = [summary(run(i), period_s, operators=True) for i, period_s in enumerate(periods_s)]
    by_length = [summary(run(i), finest_s, length) for i, length in enumerate(lengths)]
    by_experiment = [summary(experiment, finest_s) for experiment in experiments]
    first = experiments[0]
    start_s, end_s = first.events.window_s
    return Evaluation(
        title,
        "measured" if first.known_j is None else "simulated",
        len(experiments),
        first.events.iterations,
        tuple(periods_s),
        correlations(by_period),
        correlations(of_operators),
        tuple(length * (end_s - start_s) for length in lengths),
        correlations(by_length),
        correlations(by_experiment),
        {period_s: largest_error(run(i), period_s) for i, period_s in enumerate(periods_s)}
        if first.known_j is not None
        else {},
        overhead,
    )


def summary(experiment: Experiment, period_s: float, length: float = 1.0, *, operators: bool = False) -> Summary:
    """Joules by phase and module with repeated layers added up, as a sensor with this period would measure them.

    Args:
        length: Share of the run that is used, from its start.
    """
    start_s, end_s = experiment.events.window_s
    window_s = start_s, start_s + length * (end_s - start_s)
    shares = swept(experiment.events, [sampled(counter, period_s) for counter in experiment.counters], window_s)
    found: dict[tuple[str, str], float] = {}
    for row in shares.rows:
        key = row.phase, starred(row.path) + (f" {row.operation}" if operators else "")
        found[key] = found.get(key, 0.0) + row.share.energy_j
    return found


def known_summary(experiment: Experiment) -> Summary:
    """The true joules of a run with simulated power, by phase and module with repeated layers added up."""
    found: dict[tuple[str, str], float] = {}
    if experiment.known_j is None:
        return found
    places = experiment.events.places
    sums = np.bincount(experiment.events.place, experiment.known_j, len(places))
    for place, joules in zip(places, sums.tolist(), strict=True):
        key = place.phase, starred(NO_MODULE if place.path is None else place.path)
        found[key] = found.get(key, 0.0) + joules
    return found


def largest_error(experiment: Experiment, period_s: float) -> float:
    """Largest relative error of the joules of a module with over 5 % of the true joules; 0 if there is none."""
    accounted, known = summary(experiment, period_s), known_summary(experiment)
    whole_j = sum(known.values())
    large = {key: joules for key, joules in known.items() if joules > _LARGE * whole_j}
    return max((abs(accounted.get(key, 0.0) / joules - 1) for key, joules in large.items()), default=0.0)


def correlations(summaries: Sequence[Summary]) -> FloatArray:
    """Pearson's correlation of each two summaries over all modules; NaN if all modules of one have the same joules."""
    keys = sorted(set().union(*summaries))
    columns = np.array([[found.get(key, 0.0) for key in keys] for found in summaries])
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix: FloatArray = np.corrcoef(columns)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def off_diagonal(matrix: FloatArray) -> FloatArray:
    """The correlations above the diagonal of a matrix, so that each pair counts once."""
    pairs: FloatArray = matrix[np.triu_indices(len(matrix), 1)]
    return pairs
