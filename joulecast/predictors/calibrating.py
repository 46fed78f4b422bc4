"""From errors on what was held out to the intervals of calibration.py, and how well those cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..datasets import NetworkMeasurement
from ..operations import Operation
from .calibration import (
    MEASURED,
    NETWORK_QUANTITIES,
    QUANTITIES,
    STAND_IN,
    Calibration,
    Difficulty,
    ErrorGroup,
    NetworkCalibration,
    conformal_error,
    conformal_rank,
)
from .closeness import Closeness
from .features import FloatArray
from .network_validation import NetworkError
from .operation_validation import OperationErrors
from .splits import fold_of

KEPT = 99
"""Errors that are stored of a group at most: levels in steps of 1 %."""

LEAST_ERRORS = 30
"""Errors below which a group is not kept: its 90 % interval would rest on its three largest."""

_PER_BIN = 40
_MOST_BINS = 5
_KEPT_OF_ALL = 199
_MOST_PER_KIND = 20  # Otherwise one kind would speak for all kinds that nothing was measured of.
_FAR = 0.99
_CORRELATIONS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
_FLOORS = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15)


@dataclass(frozen=True)
class _Pool:
    """Errors of operations as arrays of one length, with what decides on their group."""

    errors: Mapping[str, FloatArray]
    families: NDArray[np.str_]
    host_bound: NDArray[np.bool_]
    distances: FloatArray

    def where(self, chosen: NDArray[np.bool_]) -> _Pool:
        return _Pool(
            {quantity: values[chosen] for quantity, values in self.errors.items()},
            self.families[chosen],
            self.host_bound[chosen],
            self.distances[chosen],
        )


def _pool(errors: Sequence[OperationErrors], seen: OperationErrors | None) -> _Pool:
    every = [*errors, *([seen] if seen else [])]
    every = [part.where(_once(part)) for part in every]
    families = [
        MEASURED if i >= len(errors) else STAND_IN if np.isinf(distance) else operation.row.family
        for i, part in enumerate(every)
        for operation, distance in zip(part.operations, part.distances.tolist(), strict=True)
    ]
    return _Pool(
        {quantity: np.concatenate([np.abs(part.log_errors(quantity)) for part in every]) for quantity in QUANTITIES},
        np.array(families),
        np.concatenate([part.host_bound for part in every]),
        np.concatenate([part.distances for part in every]),
    )


def _once(part: OperationErrors) -> NDArray[np.bool_]:
    """One measurement per operation, and of each kind that another stands in for only some operations."""
    usable = part.reference & ~np.isnan(part.predicted_time_s)
    # Repeats err alike, and say little that the first does not; one with power is preferred.
    order = np.argsort(np.isnan(part.power_w), kind="stable")
    first: dict[Operation, int] = {}
    for i in order[usable[order]].tolist():
        first.setdefault(part.operations[i], i)
    kept = np.zeros(len(part.operations), dtype=bool)
    kept[list(first.values())] = True
    far = kept & np.isinf(part.distances)
    kinds = np.array([operation.kind for operation in part.operations])
    for kind in set(kinds[far].tolist()):
        places = np.flatnonzero(far & (kinds == kind))
        kept[places] = False
        kept[places[np.unique(np.linspace(0, len(places) - 1, _MOST_PER_KIND).astype(int))]] = True
    return kept


def calibrate(
    closeness: Closeness, errors: Sequence[OperationErrors], seen: OperationErrors | None
) -> Calibration | None:
    """Group errors on held-out operations by family, by what bounds them, and by closeness.

    Args:
        closeness: The operations that the predictor was trained on.
        errors: On operations that were left out, by whatever split.
        seen: On new measurements of operations that were not.

    Returns:
        None where there are too few errors.
    """
    pool = _pool(errors, seen)
    if len(pool.families) < LEAST_ERRORS:
        return None
    bounds = np.where(pool.host_bound, "host", "GPU")
    unseen = pool.families != MEASURED
    groups: dict[str, tuple[ErrorGroup, ...]] = {}
    for family in sorted(set(pool.families.tolist())):
        mine = pool.families == family
        # These two have no distance: none, and no end of it.
        most = 1 if family in (MEASURED, STAND_IN) else _MOST_BINS
        by_bound = {f"{family} {bound}": _bins(pool.where(mine & (bounds == bound)), most) for bound in ("host", "GPU")}
        groups |= by_bound
        if not all(by_bound.values()):
            groups[family] = _bins(pool.where(mine), most)
    for bound in ("host", "GPU"):
        groups[bound] = _bins(pool.where(unseen & (bounds == bound)), most=1, kept=_KEPT_OF_ALL)
    groups[""] = _bins(pool.where(unseen), most=1, kept=_KEPT_OF_ALL)
    return Calibration(closeness, {name: bins for name, bins in groups.items() if bins})


def _bins(pool: _Pool, most: int, kept: int = KEPT) -> tuple[ErrorGroup, ...]:
    """Bins of distance with about as many errors each; none if there are too few."""
    count = len(pool.distances)
    if count < LEAST_ERRORS:
        return ()
    number = max(1, min(most, count // _PER_BIN))
    edges = sorted(set(np.quantile(pool.distances, np.arange(1, number) / number, method="higher").tolist()))
    place = np.searchsorted(edges, pool.distances)
    finite = pool.distances[np.isfinite(pool.distances)]
    last = float(np.quantile(finite, _FAR)) if len(finite) else 0.0
    found = []
    for i, farthest in enumerate([*edges, last]):
        mine = pool.where(place == i)
        known = {q: np.sort(values[~np.isnan(values)]) for q, values in mine.errors.items()}
        if min(len(values) for values in known.values()) >= LEAST_ERRORS // 2:
            found.append(ErrorGroup(float(farthest), {q: thinned(values, kept) for q, values in known.items()}))
    return tuple(found)


def thinned(errors: FloatArray, kept: int) -> FloatArray:
    """Sorted errors, or if there are more than `kept`, the ranks that cover as much as their ranks would."""
    if len(errors) <= kept:
        return errors
    ranks = np.ceil((len(errors) + 1) * np.arange(1, kept + 1) / (kept + 1) - 1e-9).astype(int)
    thinned: FloatArray = errors[np.minimum(ranks, len(errors)) - 1]
    return thinned


def fit_networks(
    calibration: Calibration, splits: Sequence[Sequence[NetworkError]], basis: str
) -> NetworkCalibration | None:
    """Learn how difficult networks are from those that were left out, and count their errors in that unit.

    Args:
        calibration: Of the operations.
        splits: Errors on networks, split by split.
        basis: What networks these are.

    Returns:
        None where no network was measured.
    """
    errors = [error for split in splits for error in split]
    if not errors:
        return None
    difficulties = {}
    for quantity in QUANTITIES:
        summed = np.array([e.parts.variances(calibration, quantity) for e in errors])
        size = np.array([abs(_log_error(e, "overlap", quantity)) for e in errors])
        difficulties[quantity] = min(
            (Difficulty(floor, correlation) for floor in _FLOORS for correlation in _CORRELATIONS),
            key=lambda difficulty: _misfit(size, difficulty.of(summed)),
        )
    found = NetworkCalibration(difficulties, {}, basis)
    units = [found.difficulty(calibration, e.parts) for e in errors]
    scores = {
        composition: {
            quantity: _one_of_each(
                errors,
                [
                    abs(_log_error(e, composition, quantity)) / unit[quantity]
                    for e, unit in zip(errors, units, strict=True)
                ],
            )
            for quantity in NETWORK_QUANTITIES
        }
        for composition in ("overlap", "sum")
    }
    return NetworkCalibration(difficulties, scores, basis)


def _one_of_each(errors: Sequence[NetworkError], scores: Sequence[float]) -> FloatArray:
    """Sorted scores, one per measured network, the mean over splits: they err alike, and must not count twice."""
    of_each: dict[NetworkMeasurement, list[float]] = {}
    for e, score in zip(errors, scores, strict=True):
        of_each.setdefault(e.measurement, []).append(score)
    return np.sort([float(np.mean(values)) for values in of_each.values()])


def _misfit(size: FloatArray, width: FloatArray) -> float:
    """Likelihood of errors under a Laplace distribution of that width, up to a factor that is common to all."""
    return float(np.log(np.mean(size / width)) + np.mean(np.log(width)))


def _log_error(error: NetworkError, composition: str, quantity: str) -> float:
    prefix = "" if composition == "overlap" else "sum_"
    time, energy = (np.log1p(getattr(error, f"{prefix}{name}_error")) for name in ("time", "energy"))
    return float({"time": time, "energy": energy, "power": energy - time, "edp": energy + time}[quantity])


@dataclass(frozen=True)
class Coverage:
    """How many of the cases that intervals were not made from lie within them.

    Args:
        split: How the predictor's errors were made.
        group: Which cases.
        cases: How many.
        within: Quantity -> share within the interval.
        width: Quantity -> median half width, as a factor less 1.
    """

    split: str
    group: str
    cases: int
    within: Mapping[str, float]
    width: Mapping[str, float]


def operation_coverage(
    errors: Mapping[str, OperationErrors], level: float, seed: int, folds: int = 5
) -> list[Coverage]:
    """Calibrate on some operations, and count how many of the others lie within their intervals.

    Args:
        errors: Split -> errors on operations that were left out.
        level: Of the interval.
        seed: Draws the folds; an operation lies in one in all splits.
        folds: How many.
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
            unseen = np.zeros(len(mine), dtype=bool)
            for quantity in QUANTITIES:
                widths[split][quantity][mine] = calibration.log_errors(
                    quantity, level, some.operations, some.host_bound, unseen, some.distances
                )
    found = []
    for split, part in errors.items():
        usable = part.reference & ~np.isnan(part.predicted_time_s)
        families = np.array([operation.row.family for operation in part.operations])
        groups = {"all": usable, "host-bound": usable & part.host_bound, "GPU-bound": usable & ~part.host_bound}
        groups |= {f"family {family}": usable & (families == family) for family in sorted(set(families.tolist()))}
        for group, chosen in groups.items():
            if chosen.sum() >= LEAST_ERRORS:
                found.append(_coverage(split, group, part, widths[split], chosen))
    return found


def _coverage(
    split: str, group: str, part: OperationErrors, widths: Mapping[str, FloatArray], chosen: NDArray[np.bool_]
) -> Coverage:
    within, width = {}, {}
    for quantity in QUANTITIES:
        error = np.abs(part.log_errors(quantity))[chosen]
        half = widths[quantity][chosen]
        known = ~np.isnan(error)
        within[quantity] = float(np.mean(error[known] <= half[known])) if known.any() else float("nan")
        width[quantity] = float(np.expm1(np.median(half)))
    return Coverage(split, group, int(chosen.sum()), within, width)


def network_coverage(
    calibration: Calibration, splits: Mapping[str, Sequence[NetworkError]], level: float
) -> list[Coverage]:
    """Make intervals for the networks of each name from the errors on the others, and count what they cover.

    Args:
        calibration: Of the operations.
        splits: How they were left out -> errors.
        level: Of the interval.
    """
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
                q: float(np.mean([abs(_log_error(e, "overlap", q)) <= half[q] for e, half in cases]))
                for q in NETWORK_QUANTITIES
            }
            width = {q: float(np.expm1(np.median([half[q] for _, half in cases]))) for q in NETWORK_QUANTITIES}
            found.append(Coverage(f"networks left out by {split}", "all", len(cases), within, width))
    return found
