"""Makes the calibrations of intervals/calibration.py from errors on what was left out, and measures what they cover.

Coverage is the share of held-out cases, not used to make the intervals, that lie within them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement
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
from .errors import Errors
from .left_out import SEEN

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


def _pool(errors: Errors, units: PowerUnits | None) -> _Pool:
    """The errors of several splits, of which SEEN has operations that were in the training data."""
    far = np.isinf(errors["distance"])
    families = [
        MEASURED if split == SEEN else f"{STAND_IN}, {family}" if is_far else family
        for split, family, is_far in zip(errors["split"].tolist(), families_of(errors), far.tolist(), strict=True)
    ]
    found = {quantity: np.abs(errors.log_errors(quantity)) for quantity in QUANTITIES}
    if units is not None:
        found[SCALED_POWER] = found["power"] / units.of(errors.predicted["power"])
    kinds = errors["what"].tolist()
    splits = errors["split"].tolist()
    # Other kinds stand in for kinds that were left out, of which some have many operations.
    unique = set(zip(splits, errors.of, far.tolist(), strict=True))
    of_kind = Counter((split, operation.kind) for split, operation, is_far in unique if is_far)
    shared = [
        min(1.0, _MOST_PER_KIND / of_kind[split, kind]) if is_far else 1.0
        for split, kind, is_far in zip(splits, kinds, far.tolist(), strict=True)
    ]
    weights = {quantity: weights_of(errors, values) for quantity, values in found.items()}
    return _Pool(found, weights, np.array(shared), np.array(families), errors["host_bound"], errors["distance"])


def families_of(errors: Errors) -> list[str]:
    """The family of each row's operation."""
    return [operation.row.family for operation in errors.of]


def weights_of(errors: Errors, values: FloatArray) -> FloatArray:
    """One over the number of known values of the same operation in the same split; 0 for unknown values."""
    known = ~np.isnan(values)
    cases = [*zip(errors["split"].tolist(), errors.of, strict=True)]
    counts = Counter(case for case, is_known in zip(cases, known.tolist(), strict=True) if is_known)
    return np.array([1 / max(counts[case], 1) for case in cases]) * known


def _usable(errors: Errors) -> Errors:
    return errors.where(errors["reference"] & ~np.isnan(errors.predicted["time"]))


def calibrate(closeness: Closeness, errors: Errors) -> Calibration | None:
    """Group errors on held-out operations by family, by what bounds them (host or GPU), and by closeness.

    There are errors on operations that were left out, for each way of leaving them out, and those that were in the
    training data and measured again (SEEN). Returns None if there are too few errors.
    """
    if not len(errors):
        return None
    errors = _usable(errors)
    units = power_units(errors.where(errors["split"] != SEEN))
    pool = _pool(errors, units)
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


def power_units(errors: Errors) -> PowerUnits | None:
    """For several ranges of power, the error that 90 % of the cases do not exceed; None if there are too few cases."""
    sizes = np.abs(errors.log_errors("power"))
    known = ~np.isnan(sizes)
    watts, sizes, weights = errors.predicted["power"][known], sizes[known], weights_of(errors, sizes)[known]
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


def fit_networks(calibration: Calibration, compositions: Mapping[str, Errors], basis: str) -> NetworkCalibration | None:
    """Learn the difficulty of networks from those that were left out, and express their errors in units of it.

    `compositions` are the errors on networks by how these are composed; difficulty is learned from "overlap". Returns
    None if no network was measured.
    """
    errors = compositions["overlap"]
    if not len(errors):
        return None
    difficulties = {}
    for quantity in QUANTITIES:
        summed = np.array([parts.variances(calibration, quantity) for parts in errors["parts"]])
        size = np.abs(errors.log_errors(quantity))
        difficulties[quantity] = fitted_difficulty(size, summed, np.ones(len(size)))
    found = NetworkCalibration(difficulties, {}, basis)
    scores = {
        composition: {quantity: _one_of_each(found, calibration, some, quantity) for quantity in NETWORK_QUANTITIES}
        for composition, some in compositions.items()
    }
    return NetworkCalibration(difficulties, scores, basis)


def _one_of_each(networks: NetworkCalibration, calibration: Calibration, errors: Errors, quantity: str) -> FloatArray:
    """Sorted scores, one for each measured network: the mean over splits, because its errors in them are alike."""
    sizes = np.abs(errors.log_errors(quantity)) / _difficulties(networks, calibration, errors, quantity)
    of_each: dict[NetworkMeasurement, list[float]] = {}
    for measurement, size in zip(errors.of, sizes.tolist(), strict=True):
        of_each.setdefault(measurement, []).append(size)
    return np.sort([float(np.mean(values)) for values in of_each.values()])


def _difficulties(networks: NetworkCalibration, calibration: Calibration, errors: Errors, quantity: str) -> FloatArray:
    return np.array([networks.difficulty(calibration, parts)[quantity] for parts in errors["parts"]])


def fitted_difficulty(size: FloatArray, variances: FloatArray, weights: FloatArray) -> Difficulty:
    """The difficulty under which absolute log errors are likeliest, with a Laplace distribution that wide.

    Each error has a weight, and a row of what `network_calibration.variances` gives.
    """

    def misfit(difficulty: Difficulty) -> float:
        width = difficulty.of(variances)
        means = (np.average(values, weights=weights) for values in (size / width, np.log(width)))
        return float(np.log(next(means)) + next(means))

    return min((Difficulty(floor, each) for floor in _FLOORS for each in _CORRELATIONS), key=misfit)


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
    errors: Errors, level: float, seed: int, folds: int = 5, power_range_w: tuple[float, float] = (0.0, np.inf)
) -> list[Coverage]:
    """Calibrate on some operations, and count how many of the others lie within their intervals.

    An operation lies in the same fold in all splits. Intervals of power are clipped to the range in watts.
    """
    if not len(errors):
        return []
    fold = fold_of(set(errors.of), folds, seed)
    places = np.array([fold[operation] for operation in errors.of])
    widths = {quantity: np.full(len(errors), np.nan) for quantity in QUANTITIES}
    for held in range(folds):
        calibration = calibrate(Closeness({}), errors.where(places != held))
        if calibration is None:
            return []
        mine = places == held
        some = errors.where(mine)
        cases = Cases(some.of, some["host_bound"], np.zeros_like(some["host_bound"]), some["distance"])
        for quantity in QUANTITIES:
            widths[quantity][mine] = calibration.log_errors(quantity, level, cases, some.predicted["power"])
    errors = replace(errors, columns={**errors.columns, **{f"{q} width": width for q, width in widths.items()}})
    found = []
    for split, part in errors.groups("split"):
        part = _usable(part)
        families, bound = np.array(families_of(part)), part["host_bound"]
        groups = {"all": np.full(len(part), True), "host-bound": bound, "GPU-bound": ~bound}
        groups |= {f"family {family}": families == family for family in sorted(set(families.tolist()))}
        for group, chosen in groups.items():
            if chosen.sum() >= LEAST_ERRORS:
                found.append(_coverage(split, group, part.where(chosen), power_range_w))
    return found


def _coverage(split: str, group: str, part: Errors, power_range_w: tuple[float, float]) -> Coverage:
    within, width, unique = {}, {}, {}
    for quantity in QUANTITIES:
        error, half = part.log_errors(quantity), part[f"{quantity} width"]
        inside = np.abs(error) <= half
        if quantity == "power":
            value, measured_w = part.predicted["power"], part.measured["power"]
            low, high = within_range(value / np.exp(half), value, value * np.exp(half), power_range_w)
            inside = (low <= measured_w) & (measured_w <= high)
        weights = weights_of(part, error)
        unique[quantity] = round(float(weights.sum()))
        within[quantity] = float(np.sum(inside * weights) / weights.sum()) if unique[quantity] else float("nan")
        width[quantity] = float(np.expm1(np.median(half)))
    return Coverage(split, group, len(part), within, width, unique)


def network_coverage(calibration: Calibration, errors: Errors, level: float) -> list[Coverage]:
    """Make intervals for the networks of each name from the errors on the others, and count what they cover."""
    widths = {quantity: np.full(len(errors), np.nan) for quantity in NETWORK_QUANTITIES}
    for name in sorted(set(errors["network"].tolist())) if len(errors) else ():
        mine = errors["network"] == name
        made = fit_networks(calibration, {"overlap": errors.where(~mine)}, "")
        count = 0 if made is None else len(made.scores["overlap"]["time"])
        if made is None or conformal_rank(level, count) > count:
            continue
        for quantity, width in widths.items():
            widest = conformal_error(made.scores["overlap"][quantity], level, "networks")
            width[mine] = widest * _difficulties(made, calibration, errors.where(mine), quantity)
    errors = replace(errors, columns={**errors.columns, **{f"{q} width": width for q, width in widths.items()}})
    found = []
    for split, part in errors.where(~np.isnan(widths["time"])).groups("split"):
        within, halves = {}, {}
        for quantity in NETWORK_QUANTITIES:
            half = part[f"{quantity} width"]
            within[quantity] = float(np.mean(np.abs(part.log_errors(quantity)) <= half))
            halves[quantity] = float(np.expm1(np.median(half)))
        found.append(Coverage(split, "all", len(part), within, halves, dict.fromkeys(NETWORK_QUANTITIES, len(part))))
    return found
