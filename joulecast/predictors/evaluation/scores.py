"""Summaries of validations in a few numbers, so that different recipes can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean, median

from .any_gpu import ALL, AnyGpuValidation
from .cpu import CpuValidation
from .one_gpu import Validation


@dataclass(frozen=True)
class Score:
    """Absolute relative errors on one split; None where a quantity was not measured.

    Args:
        where: GPU and mode, or all GPUs.
        split: What was left out.
        count: Operations or networks that were predicted.
        time_median, time_mean: Relative errors of loop time (own predictor), device time (any GPU) or a network's time.
        energy_mean, power_mean: Relative errors of energy and power of the same operations or networks.
    """

    where: str
    split: str
    count: int
    time_median: float
    time_mean: float
    energy_mean: float | None = None
    power_mean: float | None = None


HEADER = ("where", "left out", "count", "time: median", "mean", "energy: mean", "power: mean")
"""Names of the columns of `cells`."""


def cells(score: Score) -> list[str]:
    """A score as a row of a table."""
    errors = (score.time_median, score.time_mean, score.energy_mean, score.power_mean)
    shown = ("" if error is None else f"{100 * error:.1f} %" for error in errors)
    return [score.where, score.split, str(score.count), *shown]


def own_scores(validation: Validation) -> Iterator[Score]:
    """Scores of a GPU's own predictor."""
    where = f"{validation.gpu}, {validation.mode}"
    for errors in validation.operations:
        s = errors.summary()
        yield Score(
            where,
            f"operations in folds, {validation.campaign_titles[errors.campaign]}",
            int(s["unique_operations"]),
            s["time_median"],
            s["time_mean"],
            power_mean=s["power_mean"],
        )
    if validation.networks:
        times = [e.time_error for e in validation.networks]
        yield _of_networks(where, "networks by name", times, [e.energy_error for e in validation.networks])


def cpu_scores(validation: CpuValidation) -> Iterator[Score]:
    """Scores of a predictor of a CPU."""
    where, s = f"{validation.gpu}, {validation.mode}", validation.operations.summary()
    count = int(s["unique_operations"])
    yield Score(where, "operations in folds", count, s["time_median"], s["time_mean"], power_mean=s.get("power_mean"))
    if validation.networks:
        times = [each.errors["time"] for each in validation.networks]
        energies = [each.errors["energy"] for each in validation.networks if "energy" in each.errors]
        yield _of_networks(where, "networks by name", times, energies)


def any_gpu_scores(validation: AnyGpuValidation) -> Iterator[Score]:
    """Scores of a predictor for any GPU."""
    for split, errors in (("operations in folds", validation.folds), ("operations by chip", validation.left_out)):
        for e in errors:
            if e.gpu == ALL:
                yield Score(ALL, split, e.operations, e.median, e.mean)
    for known, split in (
        ("nothing", "networks by chip and name"),
        ("networks", "networks by name, operations by chip"),
    ):
        for mode in ("inference", "training"):
            mine = [e for e in validation.networks if (e.known, e.measurement.mode) == (known, mode)]
            if mine:
                powers = [e.power for e in mine]
                yield _of_networks(f"{ALL}, {mode}", split, [e.time for e in mine], [e.energy for e in mine], powers)


def _of_networks(
    where: str, split: str, time: list[float], energy: list[float], power: Iterable[float] | None = None
) -> Score:
    times = [abs(error) for error in time]
    power_mean = None if power is None else mean(map(abs, power))
    energy_mean = mean(map(abs, energy)) if energy else None
    return Score(where, split, len(times), median(times), mean(times), energy_mean, power_mean)
