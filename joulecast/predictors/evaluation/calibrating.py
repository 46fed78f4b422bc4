"""Makes the calibrations of intervals/calibration.py from errors on what was left out, and measures what they cover.

Coverage is the share of held-out cases, not used to make the intervals, that lie within them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement
from ...operations.operation import Operation
from ..intervals.calibration import (
    MEASURED,
    QUANTITIES,
    SCALED_POWER,
    STAND_IN,
    Calibration,
    Cases,
    Closeness,
    ErrorGroup,
    PowerUnits,
)
from ..intervals.conformal import conformal_error, conformal_rank, thinned, within_range
from ..intervals.network_calibration import NETWORK_QUANTITIES, Difficulty, NetworkCalibration
from ..measured import fold_of
from .errors import NetworkError, OperationErrors

MOST_ERRORS = 99
"""Largest number of errors that are stored for a group. With it, the levels of intervals have steps of 1 %."""

LEAST_ERRORS = 30
"""Least number of errors of a group. With fewer, its 90 % interval would depend on its three largest errors alone."""

_PER_BIN = 40
_MOST_BINS = 5
_MOST_ERRORS_OF_ALL = 199
_MOST_PER_KIND = 20  # Otherwise a kind with many operations would decide the interval of kinds that were not measured.
_FAR = 0.99
_MOST_UNITS = 12
_UNIT_LEVEL = 0.9
_LEAST_UNIT = 1e-3  # Smaller differences of power are below the resolution of sensors.
_ROUNDING = 1e-6  # Tolerance for rounding errors in sums of weights.
_CORRELATIONS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
_FLOORS = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15)


class _Pool(NamedTuple):
    """Errors on measurements as arrays of the same length, with the properties that decide their group.

    Args:
        errors: Quantity -> absolute log errors; NaN for what was not measured.
        weights: Quantity -> weight of each error. All measurements of an operation have a weight of 1 together, because
            their errors are alike.
        shared: Factor for the weights in groups of several kinds, so that no kind dominates.
        families: Family of each operation, or the name of a special group: MEASURED, or one that begins with STAND_IN.
    """

    errors: Mapping[str, FloatArray]
    weights: Mapping[str, FloatArray]
    shared: FloatArray
    families: NDArray[np.str_]
    host_bound: NDArray[np.bool_]
    distances: FloatArray

    def where(self, chosen: NDArray[np.bool_]) -> _Pool:
        errors, weights = ({name: values[chosen] for name, values in each.items()} for each in self[:2])
        columns: list[Any] = [column[chosen] for column in self[2:]]
        return _Pool(errors, weights, *columns)

    def as_shared(self) -> _Pool:
        """A copy with the weights for groups of several kinds."""
        return self._replace(weights={quantity: each * self.shared for quantity, each in self.weights.items()})


def _pool(every: Sequence[OperationErrors], seen: int, units: PowerUnits | None) -> _Pool:
    """Join the errors of several splits.

    From index `seen` on, the operations of the splits were in the training data.
    """
    families = [
        MEASURED if i >= seen else f"{STAND_IN}, {family}" if np.isinf(distance) else family
        for i, part in enumerate(every)
        for family, distance in zip((o.row.family for o in part.operations), part.distances.tolist(), strict=True)
    ]
    errors = {
        quantity: np.concatenate([np.abs(part.log_errors(quantity)) for part in every]) for quantity in QUANTITIES
    }
    if units is not None:
        errors[SCALED_POWER] = errors["power"] / units.of(np.concatenate([part.predicted_power_w for part in every]))
    starts = np.cumsum([0, *(len(part.operations) for part in every)])
    weights = {
        quantity: np.concatenate(
            [weights_of(part.operations, values[start:]) for part, start in zip(every, starts[:-1], strict=True)]
        )
        for quantity, values in errors.items()
    }
    return _Pool(
        errors,
        weights,
        np.concatenate([_shared(part) for part in every]),
        np.array(families),
        np.concatenate([part.host_bound for part in every]),
        np.concatenate([part.distances for part in every]),
    )


def weights_of(operations: Sequence[Operation], values: FloatArray) -> FloatArray:
    """One over the number of measurements of the same operation; 0 for unknown values."""
    known = ~np.isnan(values[: len(operations)])
    counts = Counter(operation for operation, is_known in zip(operations, known.tolist(), strict=True) if is_known)
    return np.array([1 / max(counts[operation], 1) for operation in operations]) * known


def _shared(part: OperationErrors) -> FloatArray:
    """Factor for each weight: below 1 if another kind stands in for this one, and it has many operations; else 1."""
    unique = set(zip(part.operations, np.isinf(part.distances).tolist(), strict=True))
    of_kind = Counter(operation.kind for operation, far in unique if far)
    far = zip(part.operations, np.isinf(part.distances).tolist(), strict=True)
    return np.array([min(1.0, _MOST_PER_KIND / of_kind[o.kind]) if is_far else 1.0 for o, is_far in far])


def _usable(part: OperationErrors) -> OperationErrors:
    return part.where(part.reference & ~np.isnan(part.predicted_time_s))


def calibrate(
    closeness: Closeness, errors: Sequence[OperationErrors], seen: OperationErrors | None
) -> Calibration | None:
    """Group errors on held-out operations by family, by what bounds them (host or GPU), and by closeness.

    There are errors on operations that were left out, for each way of leaving them out, and those that were `seen` in
    the training data and measured again. Returns None if there are too few errors.
    """
    left_out = [_usable(part) for part in errors]
    units = power_units(left_out)
    pool = _pool([*left_out, *([_usable(seen)] if seen else [])], len(left_out), units)
    if pool.weights["time"].sum() < LEAST_ERRORS:
        return None
    unseen = pool.families != MEASURED
    stands_in = np.char.startswith(pool.families, STAND_IN)
    groups: dict[str, tuple[ErrorGroup, ...]] = {}
    for family in sorted(set(pool.families.tolist())):
        # These two groups are not divided by distance: it is zero in one and infinite in the other.
        most = 1 if family == MEASURED or family.startswith(STAND_IN) else _MOST_BINS
        groups |= _by_bound(family, pool.families == family, pool, most)
    groups |= _by_bound(STAND_IN, stands_in, pool.as_shared(), 1)
    shared = pool.as_shared()
    for name, mine in (("host", pool.host_bound), ("GPU", ~pool.host_bound), ("", True)):
        groups[name] = _bins(shared.where(unseen & mine), most=1, most_errors=_MOST_ERRORS_OF_ALL)
    return Calibration(closeness, {name: bins for name, bins in groups.items() if bins}, units)


def _by_bound(name: str, mine: NDArray[np.bool_], pool: _Pool, most: int) -> dict[str, tuple[ErrorGroup, ...]]:
    """Groups of the operations that the host bounds and of those that the GPU bounds; if one is too small, of both."""
    sides = {"host": pool.host_bound, "GPU": ~pool.host_bound}
    found = {f"{name} {bound}": _bins(pool.where(mine & side), most) for bound, side in sides.items()}
    if not all(found.values()):
        found[name] = _bins(pool.where(mine), most)
    return found


def power_units(errors: Sequence[OperationErrors]) -> PowerUnits | None:
    """For several ranges of power, the error that 90 % of the cases do not exceed; None if there are too few cases."""
    watts = np.concatenate([part.predicted_power_w for part in errors]) if errors else np.empty(0)
    sizes = np.concatenate([np.abs(part.log_errors("power")) for part in errors]) if errors else np.empty(0)
    weights = np.concatenate([weights_of(p.operations, p.log_errors("power")) for p in errors]) if errors else sizes
    known = ~np.isnan(sizes)
    watts, sizes, weights = watts[known], sizes[known], weights[known]
    number = min(_MOST_UNITS, int(weights.sum()) // _PER_BIN)
    if number < 2:
        return None
    edges = sorted({_quantile(watts, weights, level) for level in np.arange(1, number) / number})
    place = np.searchsorted(edges, watts)
    found = []
    for i in sorted(set(place.tolist())):
        mine = place == i
        size = max(_quantile(sizes[mine], weights[mine], _UNIT_LEVEL), _LEAST_UNIT)
        found.append((_quantile(watts[mine], weights[mine], 0.5), size))
    return PowerUnits(*np.array(found).T)


def _quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """The weighted quantile of values: the least one with at least a share `level` of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, level * reached[-1] - _ROUNDING))
    return float(values[order[min(place, len(order) - 1)]])


def _bins(pool: _Pool, most: int, most_errors: int = MOST_ERRORS) -> tuple[ErrorGroup, ...]:
    """Bins of distance with about as many operations each; none if there are too few."""
    count = int(pool.weights["time"].sum() + _ROUNDING)
    if count < LEAST_ERRORS:
        return ()
    number = max(1, min(most, count // _PER_BIN))
    levels = np.arange(1, number) / number
    edges = sorted({_quantile(pool.distances, pool.weights["time"], level) for level in levels})
    place = np.searchsorted(edges, pool.distances)
    finite = pool.distances[np.isfinite(pool.distances)]
    last = float(np.quantile(finite, _FAR)) if len(finite) else 0.0
    found = []
    for i, farthest in enumerate([*edges, last]):
        mine = pool.where(place == i)
        if min(weights.sum() for weights in mine.weights.values()) + _ROUNDING >= LEAST_ERRORS // 2:
            known = {
                quantity: thinned(mine.errors[quantity], most_errors, mine.weights[quantity])
                for quantity in mine.errors
            }
            found.append(ErrorGroup(float(farthest), known))
    return tuple(found)


def fit_networks(
    calibration: Calibration, splits: Sequence[Sequence[NetworkError]], basis: str
) -> NetworkCalibration | None:
    """Learn the difficulty of networks from those that were left out, and express their errors in units of it.

    Returns:
        The calibration of networks; None if no network was measured.
    """
    errors = [error for split in splits for error in split]
    if not errors:
        return None
    difficulties = {}
    for quantity in QUANTITIES:
        summed = np.array([e.parts.variances(calibration, quantity) for e in errors])
        size = np.array([abs(log_error(e, "overlap", quantity)) for e in errors])
        difficulties[quantity] = fitted_difficulty(size, summed, np.ones(len(size)))
    found = NetworkCalibration(difficulties, {}, basis)
    units = [found.difficulty(calibration, e.parts) for e in errors]
    scores = {
        composition: {
            quantity: _one_of_each(
                errors,
                [
                    abs(log_error(e, composition, quantity)) / unit[quantity]
                    for e, unit in zip(errors, units, strict=True)
                ],
            )
            for quantity in NETWORK_QUANTITIES
        }
        for composition in ("overlap", "sum")
    }
    return NetworkCalibration(difficulties, scores, basis)


def _one_of_each(errors: Sequence[NetworkError], scores: Sequence[float]) -> FloatArray:
    """Sorted scores, one for each measured network: the mean over splits, because its errors in them are alike."""
    of_each: dict[NetworkMeasurement, list[float]] = {}
    for e, score in zip(errors, scores, strict=True):
        of_each.setdefault(e.measurement, []).append(score)
    return np.sort([float(np.mean(values)) for values in of_each.values()])


def fitted_difficulty(size: FloatArray, variances: FloatArray, weights: FloatArray) -> Difficulty:
    """The difficulty under which absolute log errors are likeliest, with a Laplace distribution that wide.

    Each error has a weight, and a row of what `network_calibration.variances` gives.
    """

    def misfit(difficulty: Difficulty) -> float:
        width = difficulty.of(variances)
        means = (np.average(values, weights=weights) for values in (size / width, np.log(width)))
        return float(np.log(next(means)) + next(means))

    return min((Difficulty(floor, each) for floor in _FLOORS for each in _CORRELATIONS), key=misfit)


def log_error(error: NetworkError, composition: str, quantity: str) -> float:
    """Log of predicted over measured time, power, energy or energy-delay product of a network."""
    prefix = "" if composition == "overlap" else "sum_"
    time, energy = (np.log1p(error.error(f"{prefix}{name}")) for name in ("time", "energy"))
    return float({"time": time, "energy": energy, "power": energy - time, "edp": energy + time}[quantity])


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
    widths = {split: {q: np.full(len(part.operations), np.nan) for q in QUANTITIES} for split, part in errors.items()}
    for held in range(folds):
        others = [part.where(places[split] != held) for split, part in errors.items()]
        calibration = calibrate(Closeness({}), others, None)
        if calibration is None:
            return []
        for split, part in errors.items():
            mine = places[split] == held
            some = part.where(mine)
            cases = Cases(some.operations, some.host_bound, np.zeros_like(some.host_bound), some.distances)
            for quantity in QUANTITIES:
                widths[split][quantity][mine] = calibration.log_errors(quantity, level, cases, some.predicted_power_w)
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
    names = {e.measurement.network for errors in splits.values() for e in errors}
    halves: dict[str, list[tuple[NetworkError, dict[str, float]]]] = {split: [] for split in splits}
    for name in sorted(names):
        others = [[e for e in errors if e.measurement.network != name] for errors in splits.values()]
        made = fit_networks(calibration, others, "")
        count = 0 if made is None else len(made.scores["overlap"]["time"])
        if made is None or conformal_rank(level, count) > count:
            continue
        widest = {q: conformal_error(made.scores["overlap"][q], level, "networks") for q in NETWORK_QUANTITIES}
        for split, errors in splits.items():
            for e in errors:
                if e.measurement.network == name:
                    unit = made.difficulty(calibration, e.parts)
                    halves[split].append((e, {q: unit[q] * widest[q] for q in NETWORK_QUANTITIES}))
    found = []
    for split, cases in halves.items():
        if cases:
            within, width = {}, {}
            for q in NETWORK_QUANTITIES:
                within[q] = float(np.mean([abs(log_error(e, "overlap", q)) <= half[q] for e, half in cases]))
                width[q] = float(np.expm1(np.median([half[q] for _, half in cases])))
            unique = dict.fromkeys(NETWORK_QUANTITIES, len(cases))
            found.append(Coverage(f"networks left out by {split}", "all", len(cases), within, width, unique))
    return found
