"""Repeats of a measurement: mean and standard deviation, comparison of two programs, and rows for a CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from ..errors import InputError
from ..rendering.answers import table_csv
from .result import Metering

_EXACT = 20_000  # Most divisions that are all tried; 8 runs against 8 have 12,870.
COLUMNS = (
    "started", "host", "program", "run", "device", "component", "counted", "source", "energy_j", "complete", "mean_w",
    "peak_w", "idle_j", "duration_s", "exit_code", "sensor", "name", "driver",
)  # fmt: skip
"""Columns of the CSV form: one row for each device of each run. What is not known is empty."""


def runs_csv(runs: Sequence[Metering]) -> str:
    """The devices of measurements with what is known of them, as CSV."""

    def rows() -> Iterator[list[object]]:
        for number, metering in enumerate(runs, 1):
            started = {recording.host: recording.started for recording in metering.recordings}
            for found in metering.devices:
                facts = found.device.facts
                yield [
                    started[found.host], found.host, metering.title, number, found.device.name, found.device.component,
                    found.device.counted, found.device.method, found.energy_j, found.complete, found.mean_w,
                    found.peak_w, found.idle_j, found.duration_s, metering.exit_code, facts.get("sensor"),
                    facts.get("device"), facts.get("driver"),
                ]  # fmt: skip

    return table_csv(COLUMNS, rows())


def quantities(runs: Sequence[Metering]) -> dict[str, list[float]]:
    """Seconds, and joules of all devices and of each one, in all runs in which they are known, by name and unit."""
    found: dict[str, list[float]] = {"time (s)": [run.duration_s for run in runs]}
    for run in runs:
        if run.energy_j is not None:
            found.setdefault("energy (J)", []).append(run.energy_j)
        for device in run.devices:
            found.setdefault(f"{device.device.name} (J)", []).append(device.energy_j)
    return {name: values for name, values in found.items() if len(values) == len(runs)}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation of a sample; None for the deviation of a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def least_p_value(first: int, second: int) -> float:
    """The smallest p-value that samples of these sizes can have: 0.1 for 3 against 3 values, 0.008 for 5 against 5."""
    return (2 if first == second else 1) / math.comb(first + second, first)


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Probability of a difference of means at least as large, if both samples had the same distribution.

    It is that of a permutation test, which assumes no distribution: the share of all divisions of the pooled values
    into two samples of these sizes whose means differ as much. Of more than 20,000 divisions as many are drawn at
    random. Raises InputError: a sample has fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        raise InputError(
            "a single run cannot be tested for significance",
            given=f"{len(first)} and {len(second)} runs",
            allowed="2 or more of each, better 5",
            hint="measure with --repeat 5",
        )
    pooled, n = np.array([*first, *second], dtype=float), len(first)
    total, sizes = pooled.sum(), (n, len(pooled) - n)
    if math.comb(len(pooled), n) <= _EXACT:
        sums = np.array([pooled[list(places)].sum() for places in combinations(range(len(pooled)), n)])
    else:
        draw = np.random.default_rng(0)
        sums = np.array([draw.permutation(pooled)[:n].sum() for _ in range(_EXACT)])
    differences = np.abs(sums / sizes[0] - (total - sums) / sizes[1])
    seen = abs(float(np.mean(first)) - float(np.mean(second)))
    return float(np.mean(differences >= seen * (1 - 1e-9)))
