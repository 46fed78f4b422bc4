"""Makes the calibrations of intervals/calibration.py from errors on what was left out, and measures what they cover.

Coverage is the share of held-out cases, not used to make the intervals, that lie within them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import FloatArray, grouped
from ..intervals.calibration import (
    MEASURED,
    ONE_SIGMA,
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
from ..intervals.network_calibration import NETWORK_QUANTITIES, Difficulty, NetworkCalibration, variances
from ..measured import fold_of
from .errors import SEEN, Coverage, Errors

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
    if pool["weight of time"].sum() < LEAST_ERRORS:
        return None
    groups: dict[str, tuple[ErrorGroup, ...]] = {}
    for family, mine in sorted(pool.groups("group")):
        # These two groups are not divided by distance: it is zero in one and infinite in the other.
        groups |= _by_bound(family, mine, 1 if family == MEASURED or family.startswith(STAND_IN) else _MOST_BINS)
    weights = {name: values * pool["shared"] for name, values in pool.columns.items() if name.startswith("weight")}
    pool = pool.having(weights)  # Those for groups of several kinds, so that no kind dominates.
    groups |= _by_bound(STAND_IN, pool.where(np.char.startswith(pool["group"], STAND_IN)), 1)
    unseen, by_host = pool["group"] != MEASURED, pool["host_bound"]
    for name, chosen in (("host", by_host), ("GPU", ~by_host), ("", unseen)):
        groups[name] = _bins(pool.where(unseen & chosen), most=1, most_errors=_MOST_ERRORS_OF_ALL)
    return Calibration(closeness, {name: bins for name, bins in groups.items() if bins}, units)


def _pool(errors: Errors, units: PowerUnits | None) -> Errors:
    """Errors with the columns that decide their groups, of several splits, of which SEEN was in the training data.

    The columns are the "error of" a quantity, absolute and logarithmic, and its "weight of": all measurements of an
    operation have a weight of 1 together, because their errors are alike. The "group" is the family, or MEASURED, or
    begins with STAND_IN; "shared" is the factor of weights where other kinds have the same group.
    """
    far, splits = np.isinf(errors["distance"]), errors["split"].tolist()
    groups = [
        MEASURED if split == SEEN else f"{STAND_IN}, {family}" if is_far else family
        for split, family, is_far in zip(splits, errors.families, far.tolist(), strict=True)
    ]
    sizes = {quantity: np.abs(errors.log_errors(quantity)) for quantity in QUANTITIES}
    if units is not None:
        sizes[SCALED_POWER] = sizes["power"] / units.of(errors.predicted["power"])
    # Other kinds stand in for kinds that were left out, of which some have many operations.
    unique = set(zip(splits, errors.of, far.tolist(), strict=True))
    of_kind = Counter((split, operation.kind) for split, operation, is_far in unique if is_far)
    shared = [
        min(1.0, _MOST_PER_KIND / of_kind[split, kind]) if is_far else 1.0
        for split, kind, is_far in zip(splits, errors["what"].tolist(), far.tolist(), strict=True)
    ]
    columns = {"group": np.array(groups), "shared": np.array(shared)}
    columns |= {f"error of {quantity}": size for quantity, size in sizes.items()}
    return errors.having(
        columns | {f"weight of {quantity}": weights_of(errors, size) for quantity, size in sizes.items()}
    )


def _by_bound(name: str, pool: Errors, most: int) -> dict[str, tuple[ErrorGroup, ...]]:
    """Groups of the operations that the host bounds and of those that the GPU bounds; if one is too small, of both."""
    sides = {"host": pool["host_bound"], "GPU": ~pool["host_bound"]}
    found = {f"{name} {bound}": _bins(pool.where(side), most) for bound, side in sides.items()}
    return found if all(found.values()) else {**found, name: _bins(pool, most)}


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


def _bins(pool: Errors, most: int, most_errors: int = MOST_ERRORS) -> tuple[ErrorGroup, ...]:
    """Bins of distance with about as many operations each; none if there are too few."""
    weights, distances = pool["weight of time"], pool["distance"]
    count = int(weights.sum() + _ROUNDING)
    if count < LEAST_ERRORS:
        return ()
    number = max(1, min(most, count // _PER_BIN))
    edges = sorted({_quantile(distances, weights, level) for level in np.arange(1, number) / number})
    place = np.searchsorted(edges, distances)
    finite = distances[np.isfinite(distances)]
    last = float(np.quantile(finite, _FAR)) if len(finite) else 0.0
    quantities = [name.removeprefix("error of ") for name in pool.columns if name.startswith("error of ")]
    found = []
    for i, farthest in enumerate([*edges, last]):
        mine = {q: (pool[f"error of {q}"][place == i], pool[f"weight of {q}"][place == i]) for q in quantities}
        if min(weight.sum() for _, weight in mine.values()) + _ROUNDING >= LEAST_ERRORS // 2:
            known = {quantity: thinned(size, most_errors, weight) for quantity, (size, weight) in mine.items()}
            found.append(ErrorGroup(float(farthest), known))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Parts:
    """The operations of a network that are known, from which its difficulty is computed.

    Args:
        shares: Share of each operation in the network's device time; they sum up to 1.
        cases: The operations, as their errors are looked up.
    """

    shares: FloatArray
    cases: Cases


def with_variances(errors: Errors, calibration: Calibration) -> Errors:
    """Errors on networks with "variances of" quantities from their "parts"; see `network_calibration.variances`."""
    columns = {}
    for quantity in QUANTITIES if len(errors) else ():
        sigmas = ((each, calibration.log_errors(quantity, ONE_SIGMA, each.cases)) for each in errors["parts"])
        columns[f"variances of {quantity}"] = np.array([variances(each.shares, sigma) for each, sigma in sigmas])
    return errors.having(columns)


def fit_networks(compositions: Mapping[str, Errors], basis: str) -> NetworkCalibration | None:
    """Learn the difficulty of networks from those that were left out, and express their errors in units of it.

    `compositions` are the errors on networks by how these are composed, `with_variances`; difficulty is learned from
    "overlap". Returns None if no network was measured.
    """
    errors = compositions["overlap"]
    if not len(errors):
        return None
    difficulties = {
        name: fitted_difficulty(np.abs(errors.log_errors(name)), errors[f"variances of {name}"], np.ones(len(errors)))
        for name in QUANTITIES
    }
    found = NetworkCalibration(difficulties, {}, basis)
    scores = {
        composition: {quantity: _one_of_each(found, some, quantity) for quantity in NETWORK_QUANTITIES}
        for composition, some in compositions.items()
    }
    return replace(found, scores=scores)


def _one_of_each(networks: NetworkCalibration, errors: Errors, quantity: str) -> FloatArray:
    """Sorted scores, one for each measured network: the mean over splits, because its errors in them are alike."""
    sizes = np.abs(errors.log_errors(quantity)) / _difficulties(networks, errors)[quantity]
    of_each = grouped(zip(errors.of, sizes.tolist(), strict=True))
    return np.sort([float(np.mean(values)) for values in of_each.values()])


def _difficulties(networks: NetworkCalibration, errors: Errors) -> dict[str, FloatArray]:
    return networks.summed({quantity: errors[f"variances of {quantity}"] for quantity in QUANTITIES})


def fitted_difficulty(size: FloatArray, of: FloatArray, weights: FloatArray) -> Difficulty:
    """The difficulty under which absolute log errors are likeliest, with a Laplace distribution that wide.

    Each error has a weight, and a row of what `network_calibration.variances` gives.
    """

    def misfit(difficulty: Difficulty) -> float:
        width = difficulty.of(of)
        means = (np.average(values, weights=weights) for values in (size / width, np.log(width)))
        return float(np.log(next(means)) + next(means))

    return min((Difficulty(floor, each) for floor in _FLOORS for each in _CORRELATIONS), key=misfit)


LEVEL = 0.9
"""Level of the intervals whose coverage is reported."""


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
    halves = {quantity: np.full(len(errors), np.nan) for quantity in QUANTITIES}
    for held in range(folds):
        calibration = calibrate(Closeness({}), errors.where(places != held))
        if calibration is None:
            return []
        some = errors.where(places == held)
        cases = Cases(some.of, some["host_bound"], np.zeros_like(some["host_bound"]), some["distance"])
        for quantity, half in halves.items():
            half[places == held] = calibration.log_errors(quantity, level, cases, some.predicted["power"])
    found = []
    for split, part in errors.having({width_of(name): half for name, half in halves.items()}).groups("split"):
        part = _usable(part)
        families, bound = np.array(part.families), part["host_bound"]
        groups = {"all": np.full(len(part), True), "host-bound": bound, "GPU-bound": ~bound}
        groups |= {f"family {family}": families == family for family in sorted(set(families.tolist()))}
        for group, chosen in groups.items():
            if chosen.sum() >= LEAST_ERRORS:
                found.append(covered(split, group, part.where(chosen), QUANTITIES, power_range_w))
    return found


def network_coverage(errors: Errors, level: float) -> list[Coverage]:
    """Make intervals for the networks of each name from the errors on the others, and count what they cover.

    The errors are `with_variances`.
    """
    halves = {quantity: np.full(len(errors), np.nan) for quantity in NETWORK_QUANTITIES}
    for name, mine in errors.groups("network"):
        others = errors["network"] != name
        made = fit_networks({"overlap": errors.where(others)}, "")
        count = 0 if made is None else len(made.scores["overlap"]["time"])
        if made is None or conformal_rank(level, count) > count:
            continue
        for quantity, half in halves.items():
            widest = conformal_error(made.scores["overlap"][quantity], level, "networks")
            half[~others] = widest * _difficulties(made, mine)[quantity]
    known = errors.having({width_of(name): half for name, half in halves.items()}).where(~np.isnan(halves["time"]))
    return [covered(split, "all", part, NETWORK_QUANTITIES) for split, part in known.groups("split")]


def width_of(quantity: str) -> str:
    """Name of the column with half widths of the intervals of a quantity."""
    return f"{quantity} width"


def covered(
    split: str, group: str, part: Errors, quantities: Sequence[str], power_range_w: tuple[float, float] = (0.0, np.inf)
) -> Coverage:
    """What intervals cover whose half widths are in columns; those of power are clipped to a range in watts."""
    within, width, unique = {}, {}, {}
    for quantity in quantities:
        half = part[width_of(quantity)]
        error = np.where(np.isnan(half), np.nan, part.log_errors(quantity))  # Too few others may know the quantity.
        inside = np.abs(error) <= half
        if quantity == "power":
            value, measured_w = part.predicted["power"], part.measured["power"]
            low, high = within_range(value / np.exp(half), value, value * np.exp(half), power_range_w)
            inside = (low <= measured_w) & (measured_w <= high)
        weights = weights_of(part, error)
        if whole := float(weights.sum()):
            unique[quantity], within[quantity] = round(whole), float(np.sum(inside * weights) / whole)
            width[quantity] = float(np.expm1(np.nanmedian(half)))
    return Coverage(split, group, len(part), within, width, unique)
