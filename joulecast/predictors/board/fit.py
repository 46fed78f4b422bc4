"""Fits a profile to measurements: few factors, each drawn towards 1 as far as the measurements support it.

The log error of a prediction is taken as the sum of the log factors that act on the operation, each weighted by how
much the prediction follows it, and of noise. Factors of one class (units, kinds) have a common variance around 1. That
and the variance of the noise are those under which the measurements are most likely (expectation maximization, as in
Searle, Casella and McCulloch, Variance Components, chapter 8), so how far a factor is drawn towards 1 is estimated, not
chosen. Noise has heavy tails: a measurement that no factor explains counts less (Student's t with four degrees of
freedom). The predictions are corrected and the factors fitted again until they agree (Gauss and Newton).

Errors are those of operations that were left out, a fifth at a time. Where they are no smaller than without the
profile, the profile leaves time or energy as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...arrays import FloatArray
from ...datasets import Dataset, Measurement
from ...errors import InputError
from ...hardware import GPU
from ...operations.operation import MODES
from ...operations.operation_list import OperationList
from ..contract import PredictsOperations
from ..intervals.conformal import thinned
from ..operation_predictions import OperationPredictions
from ..physics.operation_numbers import FAMILIES, numbers_of
from .calibrated import corrected
from .parts import CLASSES, DRAM, DYNAMIC, ENERGY_PARTS, JOULES, LAUNCHES, STATIC, TIME_PARTS, UNITS, WHOLE, members
from .profile import ALL, DAY, MOST_ERRORS, QUANTITIES, BoardProfile, Improvement

LEAST_OPERATIONS = 10
"""Least number of operations that were measured; fewer say nothing about operations that were left out."""

_FOLDS = 5
_ROUNDS, _STEPS = 4, 60  # Corrections of the predictions; steps of expectation maximization in each.
_TAILS = 4.0  # Degrees of freedom of the noise.
_MEAN_OF_TAILS = 1.0  # Mean absolute value of Student's t with four degrees of freedom, relative to its scale.
_LEAST_VARIANCE, _FIRST_VARIANCE, _LEAST_NOISE = 1e-8, 0.02, 1e-4
_LEAST_FAMILY = 10  # Errors from which a family has intervals of its own.
_AT_CAP = 0.97  # Share of the cap from which power says nothing about energy.
_LEAST_ABOVE = 0.1  # Watts above static ones, relative to these: less cannot be told from an error of static power.
_LARGEST_LOG = 2.0  # Of a factor: 7.4 times.
_FREE, _CLOCK_STEP = 0.8, 0.02  # Share of the cap below which no clock is lowered; clocks change in steps of about 1 %.
_LEAST = 1e-30
_SAME = 1.001  # A loop that takes no longer than its device time was timed without a host.


@dataclass(frozen=True)
class _Rows:
    """Measurements of one mode beside their predictions. Arrays have one value for each measurement; NaN is unknown."""

    gpu: GPU
    mode: str
    cap_w: float
    found: OperationPredictions
    groups: NDArray[np.int64]
    loop_s: FloatArray
    device_s: FloatArray
    power_w: FloatArray

    @property
    def operations(self) -> OperationList:
        return OperationList.of(self.found.operations)

    def on(self, profile: BoardProfile) -> OperationPredictions:
        """The predictions for the board."""
        return corrected(self.found, self.gpu, profile, float(self.gpu.boost_clock_mhz))


class _Equations(NamedTuple):
    """Log errors of predictions as linear equations of the logs of factors.

    Args:
        errors: Log errors, shape (equations,).
        follows: How each follows the log of each factor, shape (equations, names).
        groups: The operation of each.
        judged: Whether each is among the errors that a profile is judged by.
    """

    errors: FloatArray
    follows: FloatArray
    groups: NDArray[np.int64]
    judged: NDArray[np.bool_]


class _Fitted(NamedTuple):
    """Logs of factors, their covariance, and the variance of the noise."""

    logs: FloatArray
    covariance: FloatArray
    noise: float


def fit_profile(
    dataset: Dataset, predictors: Mapping[str, PredictsOperations], names: Mapping[str, str]
) -> BoardProfile:
    """Fit a profile to measurements of a board at the default clock and cap.

    For each mode there is a predictor to correct, of the GPU that was measured, and its name. Raises InputError: fewer
    than ten operations can be compared.
    """
    card, cap_w = dataset.card, dataset.card.power_limit_w
    found = [_rows(dataset, mode, predictors[mode], cap_w) for mode in MODES if mode in predictors]
    rows = [each for each in found if each is not None]
    operations = len({int(group) for each in rows for group in each.groups})
    if operations < LEAST_OPERATIONS:
        raise InputError(
            "there are too few measurements for a calibration",
            given=f"{operations} operations that were measured and can be predicted",
            allowed=f"{LEAST_OPERATIONS} or more",
            hint="measure for longer: joulecast calibrate --minutes 10",
        )
    started = (each.started[:10] for each in dataset.measurements)
    days = sorted(day for day in started if DAY.fullmatch(day)) or ["1970-01-01"]
    empty = BoardProfile(
        gpu=rows[0].gpu.name,
        board={"name": card.gpu} | ({} if cap_w is None else {"power limit (W)": cap_w}),
        software={"joulecast": __version__, **card.software},
        predictors={each.mode: names[each.mode] for each in rows},
        measured=(days[0], days[-1]),
        operations=operations,
        factors={},
        most_clock_mhz=_held_mhz(dataset, rows),
    )
    everything = np.unique(np.concatenate([each.groups for each in rows]))
    fold_of = np.random.default_rng(0).permutation(len(everything)) % _FOLDS
    before, after = ({name: np.empty((2, 0)) for name in QUANTITIES} for _ in range(2))
    for fold in range(_FOLDS):
        profile, _ = _fitted(empty, rows, everything[fold_of != fold])
        for found_errors, each in ((before, replace(empty, most_clock_mhz=None)), (after, profile)):
            for name, of in _errors(each, rows, everything[fold_of == fold]).items():
                found_errors[name] = np.hstack([found_errors[name], of])
    whole, expected = _fitted(empty, rows, everything)
    return _judged(whole, before, after, expected)


def _rows(dataset: Dataset, mode: str, predictor: PredictsOperations, cap_w: float | None) -> _Rows | None:
    measured = [each for each in dataset.measurements if each.operation.mode == mode and each.usable]
    measured = [each for each in measured if not each.operation.is_identity]
    if not measured:
        return None
    found = predictor.predict(OperationList(each.operation for each in measured), None, cap_w)
    known = np.flatnonzero([source != "missing" for source in found.source])
    if found.work is None or not len(known):
        return None
    some = [measured[place] for place in known]
    numbers: dict[str, int] = {}
    offset = MODES.index(mode) * 10**6  # An operation in another mode is another operation.
    return _Rows(
        predictor.gpu,
        mode,
        found.power_range_w[1],
        found.take(known, [each.operation for each in some]),
        np.array([offset + numbers.setdefault(each.operation.digest, len(numbers)) for each in some]),
        _column(some, "time_s"),
        _column(some, "device_time_s"),
        _column(some, "power_w"),
    )


def _column(measured: Sequence[Measurement], name: str) -> FloatArray:
    values = [None if name == "power_w" and not each.power_usable else getattr(each, name) for each in measured]
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _held_mhz(dataset: Dataset, rows: Sequence[_Rows]) -> float | None:
    """The highest clock of the board, if boards below their cap held less than the default; None if it is unknown."""
    gpu, cap_w = rows[0].gpu, rows[0].cap_w
    free = [
        each.clock_mhz
        for each in dataset.measurements
        if each.clock_mhz and each.power_w is not None and each.power_w < _FREE * cap_w
    ]
    if len(free) < LEAST_OPERATIONS:
        return None
    held = float(np.quantile(free, 0.9))
    return held if held < (1 - _CLOCK_STEP) * gpu.boost_clock_mhz else None


def _fitted(
    empty: BoardProfile, rows: Sequence[_Rows], groups: NDArray[np.int64]
) -> tuple[BoardProfile, dict[str, float]]:
    """A profile fitted to some operations, and the mean absolute log errors that it expects of others."""
    profile, expected = empty, {}
    for _ in range(_ROUNDS):
        for quantity, names, equations in (("time", TIME_PARTS, _of_time), ("power", ENERGY_PARTS, _of_power)):
            found = [equations(each, profile) for each in rows]
            errors, all_follow, of, judged = (np.concatenate(parts) for parts in zip(*found, strict=True))
            chosen = np.isin(of, groups) & np.isfinite(errors)
            used = np.flatnonzero(np.any(all_follow[chosen], axis=0))
            if not len(used):
                continue
            mine, follows = [names[place] for place in used], all_follow[chosen][:, used]
            before = np.log([profile.factors.get(name, 1.0) for name in mine])
            fit = _shrunk(errors[chosen] + follows @ before, follows, [CLASSES[name] for name in mine])
            logs = np.clip(fit.logs, -_LARGEST_LOG, _LARGEST_LOG)
            factors = dict(zip(mine, np.exp(logs).tolist(), strict=True))
            profile = replace(profile, factors={**profile.factors, **factors})
            # Of noise with heavy tails the mean absolute value is larger than that of a normal variable.
            unsure = np.einsum("ij,jk,ik->i", follows, fit.covariance, follows)[judged[chosen]]
            if len(unsure):
                expected[quantity] = float(_MEAN_OF_TAILS * np.sqrt(fit.noise + unsure).mean())
    return profile, expected


def _of_time(rows: _Rows, profile: BoardProfile) -> _Equations:
    """Errors of device times where they were measured, and of loops."""
    found = rows.on(profile)
    if found.work is None:  # `_rows` keeps no such predictions.
        raise TypeError("predictions without work")
    masks, parts = members(rows.operations, rows.gpu), found.work.parts
    slower = found.work.clock_mhz / np.maximum(found.held_clock_mhz, 1.0)
    on_clock, off_clock = (parts.compute_s**3 + parts.cache_s**3) * slower**3, parts.memory_s**3
    share = on_clock / np.maximum(on_clock + off_clock, _LEAST)
    nothing = np.zeros(len(rows.operations))
    device = {name: (1 - share if name == DRAM else share) * masks[name] for name in UNITS}
    device |= {name: masks[name] for name in WHOLE if name in masks}
    on_device = np.array([device.get(name, nothing) for name in TIME_PARTS]).T
    of_host = np.array([masks[name] if name in LAUNCHES else nothing for name in TIME_PARTS]).T
    busy = found.device_time_s**4 / (found.device_time_s**4 + found.host_time_s**4)
    in_loop = busy[:, None] * on_device + (1 - busy)[:, None] * of_host
    timed = np.isfinite(rows.device_s)
    loop_s = np.where(timed & (rows.loop_s <= _SAME * rows.device_s), np.nan, rows.loop_s)
    return _Equations(
        np.concatenate([np.log(rows.device_s / found.device_time_s), np.log(loop_s / found.time_s)]),
        np.concatenate([on_device, in_loop]),
        np.concatenate([rows.groups, rows.groups]),
        np.concatenate([timed, ~timed]),
    )


def _of_power(rows: _Rows, profile: BoardProfile) -> _Equations:
    """Errors of power of loops below the cap, and of dynamic energy of loops at it.

    At the cap power says nothing. But joules above the static ones do: with too many of them a network would be
    predicted at a lower clock than the one that holds its cap.
    """
    found, masks = rows.on(profile), members(rows.operations, rows.gpu)
    if found.work is None or rows.found.work is None:  # `_rows` keeps no such predictions.
        raise TypeError("predictions without work")
    dynamic_w = found.dynamic_energy_j / np.maximum(found.time_s, _LEAST)
    below = (rows.power_w < _AT_CAP * rows.cap_w) & (found.power_w < _AT_CAP * rows.cap_w)
    dynamic = np.clip(dynamic_w / np.maximum(found.power_w, _LEAST), 0.0, 1.0)
    of_power = {STATIC: 1 - dynamic, DYNAMIC: dynamic, **{name: dynamic * masks[name] for name in JOULES}}
    # Predicted joules end where the cap does, so that those of the work are compared.
    more = found.work.at(found.held_clock_mhz)[1] / np.maximum(rows.found.work.at(rows.found.held_clock_mhz)[1], _LEAST)
    static_w = np.maximum(found.power_w - dynamic_w, 0.0)
    above_w = np.maximum(rows.power_w - static_w, _LEAST_ABOVE * static_w)
    at_cap = np.isfinite(rows.power_w) & ~below
    joules = np.maximum(rows.found.dynamic_energy_j * more, _LEAST)
    of_energy = {STATIC: static_w / above_w, DYNAMIC: np.ones(len(above_w)), **{name: masks[name] for name in JOULES}}
    return _Equations(
        np.concatenate(
            [
                np.where(below, np.log(rows.power_w / found.power_w), np.nan),
                np.where(at_cap, np.log(above_w * rows.loop_s / joules), np.nan),
            ]
        ),
        np.concatenate([np.array([each[name] for name in ENERGY_PARTS]).T for each in (of_power, of_energy)]),
        np.concatenate([rows.groups, rows.groups]),
        np.concatenate([below, np.zeros(len(below), dtype=bool)]),
    )


def _shrunk(errors: FloatArray, follows: FloatArray, classes: Sequence[str]) -> _Fitted:
    """Logs of factors with a variance for each class, by expectation maximization; see the module.

    Errors have the shape (equations,); how they follow the log of each factor, (equations, factors).
    """
    of_class = np.unique(classes, return_inverse=True)[1]
    count = of_class.max() + 1
    variances, noise = np.full(count, _FIRST_VARIANCE), max(float(np.var(errors)), _LEAST_NOISE)
    weights: FloatArray = np.ones(len(errors))
    logs: FloatArray = np.zeros(follows.shape[1])
    covariance: FloatArray = np.diag(logs)
    for _ in range(_STEPS):
        weighted = follows.T * weights
        precision = weighted @ follows / noise + np.diag(1 / variances[of_class])
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        logs = np.asarray(covariance @ (weighted @ errors) / noise)
        squares = logs**2 + np.diag(covariance)
        variances = np.bincount(of_class, squares, count) / np.bincount(of_class, minlength=count)
        variances = np.maximum(variances, _LEAST_VARIANCE)
        left = errors - follows @ logs
        unsure = np.einsum("ij,jk,ik->i", follows, covariance, follows)
        noise = max(float(np.mean(weights * (left**2 + unsure))), _LEAST_NOISE)
        weights = (_TAILS + 1) / (_TAILS + (left**2 + unsure) / noise)
    return _Fitted(logs, covariance, noise)


def _errors(profile: BoardProfile, rows: Sequence[_Rows], groups: NDArray[np.int64]) -> dict[str, FloatArray]:
    """Quantity -> errors of operations, shape (2, errors): their logs, and the families.

    Time is the device time where that was measured, and that of the loop elsewhere, as for intervals.
    """
    found: dict[str, list[FloatArray]] = {name: [] for name in QUANTITIES}
    for each in rows:
        predicted, chosen = each.on(profile), np.isin(each.groups, groups)
        timed = np.isfinite(each.device_s)
        time_s = np.where(timed, each.device_s, each.loop_s)
        of_time = np.where(timed, predicted.device_time_s, predicted.time_s)
        pairs = (
            (time_s, of_time),
            (each.power_w, predicted.power_w),
            (each.power_w * each.loop_s, predicted.energy_j),
        )
        families = np.asarray(numbers_of(each.operations).family, dtype=float)
        for name, (measured, value) in zip(QUANTITIES, pairs, strict=True):
            logs = np.log(measured / value)
            some = chosen & np.isfinite(logs)
            found[name].append(np.array([logs[some], families[some]]))
    return {name: np.hstack(parts) for name, parts in found.items()}


def _judged(
    profile: BoardProfile,
    before: Mapping[str, FloatArray],
    after: Mapping[str, FloatArray],
    expected: Mapping[str, float],
) -> BoardProfile:
    """The profile with its errors; without the factors that did not help on operations that were left out."""
    mean = {name: (np.abs(of[0]).mean(), np.abs(after[name][0]).mean()) for name, of in before.items() if of.size}
    helps = {name: name in mean and _smaller(before[name], after[name]) for name in ("time", "power")}
    kept = (*(TIME_PARTS if helps["time"] else ()), *(ENERGY_PARTS if helps["power"] else ()))
    helps["energy"] = any(helps.values())
    improvements, errors = {}, {}
    for name, (old, new) in mean.items():
        logs, families = after[name] if helps[name] else before[name]
        # Energy is the product of both, whose errors are taken to be independent.
        both = math.hypot(expected.get("time", 0.0), expected.get("power", 0.0))
        expect = expected.get(name, both)
        improvements[name] = Improvement(float(old), expect, float(new), logs.size)
        by_family = {FAMILIES[int(place)]: logs[families == place] for place in np.unique(families)}
        enough = {family: each for family, each in by_family.items() if len(each) >= _LEAST_FAMILY}
        errors[name] = {family: thinned(np.abs(each), MOST_ERRORS) for family, each in {ALL: logs, **enough}.items()}
    return replace(
        profile,
        factors={name: factor for name, factor in profile.factors.items() if name in kept},
        most_clock_mhz=profile.most_clock_mhz if helps["time"] else None,
        improvements=improvements,
        errors=errors,
    )


def _smaller(before: FloatArray, after: FloatArray) -> bool:
    """Whether errors of the same operations are smaller, by more than the standard error of the difference."""
    gained = np.abs(before[0]) - np.abs(after[0])
    return bool(gained.mean() > gained.std() / math.sqrt(len(gained)))
