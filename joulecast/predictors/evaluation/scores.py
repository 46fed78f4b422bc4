"""Summaries of validations in a few numbers, so that different recipes can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .any_gpu import ALL, AnyGpuValidation
from .errors import NetworkError, network_summary
from .one_gpu import Validation


@dataclass(frozen=True)
class Score:
    """Absolute relative errors on one split; None where a quantity was not measured.

    Args:
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
    """Scores of a GPU's own predictor, or of one of a CPU."""
    where = f"{validation.gpu}, {validation.mode}"
    for errors in validation.operations:
        s = errors.summary()
        split = f"operations in folds, {validation.campaign_titles[errors.campaign]}"
        count = int(s["unique_operations"])
        yield Score(where, split, count, s["time_median"], s["time_mean"], power_mean=s.get("power_mean"))
    if validation.networks:
        yield _of_networks(where, "networks by name", validation.networks)


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
                yield _of_networks(f"{ALL}, {mode}", split, mine, with_power=True)


def _of_networks(where: str, split: str, errors: Sequence[NetworkError], *, with_power: bool = False) -> Score:
    s = network_summary(errors)
    power_mean = s.get("power_error_mean") if with_power else None
    times = s["time_error_median"], s["time_error_mean"]
    return Score(where, split, len(errors), *times, s.get("energy_error_mean"), power_mean)
