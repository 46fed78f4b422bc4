"""Coverage of intervals: the share of held-out cases, not used to make the intervals, that lie within them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import FloatArray
from ..intervals.calibration import QUANTITIES, Calibration, Cases, Closeness
from ..intervals.conformal import conformal_error, conformal_rank, within_range
from ..intervals.network_calibration import NETWORK_QUANTITIES
from ..measured.splits import fold_of
from .calibrating import LEAST_ERRORS, calibrate, fit_networks, log_error, weights_of
from .errors import NetworkError, OperationErrors

LEVEL = 0.9
"""Level of the intervals whose coverage is reported."""


@dataclass(frozen=True)
class Coverage:
    """Coverage of the intervals of one group of cases.

    Args:
        split: How the cases were left out of the predictor's training.
        group: What the counted cases have in common.
        within: Quantity -> share within the interval. All measurements of an operation count as one case.
        width: Quantity -> median half width, as a factor minus 1.
        unique: Quantity -> number of operations or networks behind that share.
    """

    split: str
    group: str
    cases: int
    within: Mapping[str, float]
    width: Mapping[str, float]
    unique: Mapping[str, int]


def chance_range(count: int, level: float, share: float = 0.95) -> tuple[float, float]:
    """The range of shares that correct intervals cover of `count` cases with probability `share` (binomial)."""
    ks = np.arange(count + 1)
    log_of = np.cumsum(np.log(np.maximum(ks, 1)))
    logs = log_of[count] - log_of - log_of[::-1] + ks * np.log(level) + (count - ks) * np.log1p(-level)
    below = np.cumsum(np.exp(logs))
    low, high = np.searchsorted(below, [(1 - share) / 2, (1 + share) / 2])
    return float(low) / count, float(min(high, count)) / count


def operation_coverage(
    errors: Mapping[str, OperationErrors],
    level: float,
    seed: int,
    folds: int = 5,
    power_range_w: tuple[float, float] = (0.0, np.inf),
) -> list[Coverage]:
    """Calibrate on some operations, and count how many of the others lie within their intervals.

    An operation lies in the same fold in all splits. Intervals of power are clipped to the range in watts.
    """
    fold = fold_of({o for part in errors.values() for o in part.operations}, folds, seed)
    places = {split: np.array([fold[o] for o in part.operations]) for split, part in errors.items()}
    nothing = Closeness({})
    widths = {split: {q: np.full(len(part.operations), np.nan) for q in QUANTITIES} for split, part in errors.items()}
    for held in range(folds):
        others = [part.where(places[split] != held) for split, part in errors.items()]
        calibration = calibrate(nothing, others, None)
        if calibration is None:
            return []
        for split, part in errors.items():
            mine = np.flatnonzero(places[split] == held)
            some = part.where(places[split] == held)
            cases = Cases(some.operations, some.host_bound, np.zeros(len(mine), dtype=bool), some.distances)
            for quantity in QUANTITIES:
                half = calibration.log_errors(quantity, level, cases, some.predicted_power_w)
                widths[split][quantity][mine] = half
    found = []
    for split, part in errors.items():
        usable = part.reference & ~np.isnan(part.predicted_time_s)
        families = np.array([operation.row.family for operation in part.operations])
        groups = {"all": usable, "host-bound": usable & part.host_bound, "GPU-bound": usable & ~part.host_bound}
        groups |= {f"family {family}": usable & (families == family) for family in sorted(set(families.tolist()))}
        for group, chosen in groups.items():
            if chosen.sum() >= LEAST_ERRORS:
                halves = {quantity: half[chosen] for quantity, half in widths[split].items()}
                found.append(_coverage(split, group, part.where(chosen), halves, power_range_w))
    return found


def _coverage(
    split: str, group: str, part: OperationErrors, widths: Mapping[str, FloatArray], power_range_w: tuple[float, float]
) -> Coverage:
    within, width, unique = {}, {}, {}
    for quantity, half in widths.items():
        error = part.log_errors(quantity)
        inside = np.abs(error) <= half
        if quantity == "power":
            value = part.predicted_power_w
            low, high = within_range(value / np.exp(half), value, value * np.exp(half), power_range_w)
            inside = (low <= part.power_w) & (part.power_w <= high)
        weights = weights_of(part.operations, error)
        unique[quantity] = round(float(weights.sum()))
        within[quantity] = float(np.sum(inside * weights) / weights.sum()) if unique[quantity] else float("nan")
        width[quantity] = float(np.expm1(np.median(half)))
    return Coverage(split, group, len(part.operations), within, width, unique)


def network_coverage(
    calibration: Calibration, splits: Mapping[str, Sequence[NetworkError]], level: float
) -> list[Coverage]:
    """Make intervals for the networks of each name from the errors on the others, and count what they cover."""
    found = []
    names = {e.measurement.network for errors in splits.values() for e in errors}
    halves: dict[str, list[tuple[NetworkError, dict[str, float]]]] = {split: [] for split in splits}
    for name in sorted(names):
        others = [[e for e in errors if e.measurement.network != name] for errors in splits.values()]
        made = fit_networks(calibration, others, "")
        if made is None:
            continue
        count = len(made.scores["overlap"]["time"])
        if conformal_rank(level, count) > count:
            continue
        for split, errors in splits.items():
            for e in errors:
                if e.measurement.network == name:
                    unit = made.difficulty(calibration, e.parts)
                    half = {
                        q: unit[q] * conformal_error(made.scores["overlap"][q], level, "networks")
                        for q in NETWORK_QUANTITIES
                    }
                    halves[split].append((e, half))
    for split, cases in halves.items():
        if cases:
            within = {
                q: float(np.mean([abs(log_error(e, "overlap", q)) <= half[q] for e, half in cases]))
                for q in NETWORK_QUANTITIES
            }
            width = {q: float(np.expm1(np.median([half[q] for _, half in cases]))) for q in NETWORK_QUANTITIES}
            unique = dict.fromkeys(NETWORK_QUANTITIES, len(cases))
            found.append(Coverage(f"networks left out by {split}", "all", len(cases), within, width, unique))
    return found
