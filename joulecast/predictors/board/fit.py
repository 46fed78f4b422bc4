"""Fits a profile to measurements: few factors, each drawn towards 1 as far as the measurements support it.

The log error of a prediction is taken as the sum of the log factors that act on the operation, each weighted by how
much the prediction follows it, and of noise. Factors of one class (units, kinds) have a common variance around 1. That
and the variance of the noise are those under which the measurements are most likely (expectation maximization, as in
Searle, Casella and McCulloch, Variance Components, chapter 8), so how far a factor is drawn towards 1 is estimated, not
chosen. Noise has heavy tails: a measurement that no factor explains counts less (Student's t with four degrees of
freedom). The predictions are corrected and the factors fitted again until they agree (Gauss and Newton).

Errors are those of operations that were left out, a fifth at a time. Where they are no smaller than without the
profile, the profile leaves device time, launches or energy as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...arrays import FloatArray
from ...datasets import Dataset
from ...errors import InputError
from ...hardware import GPU
from ...operations.operation import MODES, Operation
from ...operations.operation_list import OperationList
from ..intervals.conformal import thinned
from ..intervals.operation_spread import ALL
from ..operation_predictions import OperationPredictions
from ..physics.clock import Work
from ..physics.operation_numbers import FAMILIES, numbers_of
from ..predictor import OperationPredictor
from .calibrated import calibrated, members, with_voltage
from .profile import (
    ACTING,
    CLASSES,
    DAY,
    ENERGY_PARTS,
    JUDGED_BY,
    MOST_ERRORS,
    QUANTITIES,
    TIME_PARTS,
    VOLTAGE,
    BoardProfile,
    Improvement,
    places_of,
)

LEAST_OPERATIONS = 10
"""Least number of operations that were measured; fewer say nothing about operations that were left out."""

_FOLDS = 5
_ROUNDS, _STEPS = 4, 60  # Corrections of the predictions; steps of expectation maximization in each.
_TAILS = 4.0  # Degrees of freedom of the noise. Its mean absolute value is then 1, relative to its scale.
_LEAST_VARIANCE, _FIRST_VARIANCE, _LEAST_NOISE = 1e-8, 0.02, 1e-4
_LEAST_FAMILY = 10  # Errors from which a family has intervals of its own.
_AT_CAP = 0.97  # Share of the cap from which power says nothing about energy.
_LEAST_ABOVE = 0.1  # Watts above static ones, relative to these: less cannot be told from an error of static power.
_NUDGE = 0.01  # Of a factor of the voltage, for a derivative.
_LARGEST_LOG = 2.0  # Of a factor: 7.4 times.
_FREE, _CLOCK_STEP = 0.8, 0.02  # Share of the cap below which no clock is lowered; clocks change in steps of about 1 %.
_LEAST = 1e-30
_SAME = 1.001  # A loop that takes no longer than its device time was timed without a host.
_CLASS_OF = {name: place for place, names in enumerate(CLASSES.values()) for name in names}


@dataclass(frozen=True)
class _Rows:
    """Measurements of one mode at one clock setting beside their predictor.

    Args:
        clock_mhz: The clock that was set; None where the board chose, as it does for predictions at the default clock.

    Arrays have one value for each measurement; NaN is unknown.
    """

    predictor: OperationPredictor
    operations: OperationList
    clock_mhz: float | None
    cap_w: float
    groups: NDArray[np.int64]
    loop_s: FloatArray
    device_s: FloatArray
    power_w: FloatArray
    held_mhz: FloatArray

    def on(self, profile: BoardProfile) -> tuple[OperationPredictions, Work]:
        """The predictions for the board, and their work."""
        found = calibrated(self.predictor, profile).predict(self.operations, self.clock_mhz, self.cap_w)
        return found, cast(Work, found.work)  # `_rows` keeps no predictions without work.

    @cached_property
    def members(self) -> FloatArray:
        """See `members`, shape (measurements, parts)."""
        return members(self.operations, self.predictor.gpu)

    def follows(self, **weights: FloatArray) -> FloatArray:
        """How much a prediction follows the log of each factor, shape (measurements, parts).

        For each group of names its weight, shape (measurements,); what is in no group does not act.
        """
        acting = np.zeros_like(self.members)
        for name, weight in weights.items():
            places = places_of(ACTING[name])
            acting[:, places] = weight[:, None] * self.members[:, places]
        return acting


Equations: TypeAlias = tuple[FloatArray, FloatArray, NDArray[np.int64], NDArray[np.bool_]]
"""Log errors of predictions as linear equations of the logs of factors: errors, shape (equations,); how each follows
the log of each factor, shape (equations, parts); the operation of each; whether a profile is judged by it."""


def fit_profile(
    datasets: Sequence[Dataset], predictors: Mapping[str, OperationPredictor], names: Mapping[str, str]
) -> BoardProfile:
    """Fit a profile to measurements of a board under one cap, at its default clock and at others that were locked.

    For each mode there is a predictor to correct, of the GPU that was measured, and its name. Raises InputError: fewer
    than ten operations can be compared.
    """
    card, numbers = datasets[0].card, dict[Operation, int]()
    gpu = next(iter(predictors.values())).gpu
    cap_w = gpu.power_limit_w if card.power_limit_w is None else card.power_limit_w
    most_mhz, clocks_mhz = _held_mhz(datasets, gpu, cap_w)
    rows = [
        each
        for dataset, clock_mhz in zip(datasets, clocks_mhz, strict=True)
        for mode in MODES
        if mode in predictors and (each := _rows(dataset, mode, predictors[mode], clock_mhz, cap_w, numbers))
    ]
    if len(numbers) < LEAST_OPERATIONS:
        raise InputError(
            "there are too few measurements for a calibration",
            given=f"{len(numbers)} operations that were measured and can be predicted",
            allowed=f"{LEAST_OPERATIONS} or more",
            hint="measure for longer: joulecast calibrate --minutes 10",
        )
    started = (each.started[:10] for dataset in datasets for each in dataset.measurements)
    days = sorted(day for day in started if DAY.fullmatch(day)) or ["1970-01-01"]
    empty = BoardProfile(
        gpu=rows[0].predictor.gpu.name,
        board={"name": card.gpu} | ({} if card.power_limit_w is None else {"power limit (W)": cap_w}),
        software={"joulecast": __version__, **card.software},
        predictors={each.predictor.mode: names[each.predictor.mode] for each in rows},
        measured=(days[0], days[-1]),
        operations=len(numbers),
        factors={},
        most_clock_mhz=most_mhz,
    )
    fold_of = np.random.default_rng(0).permutation(len(numbers)) % _FOLDS
    folds = np.concatenate([fold_of[each.groups] for each in rows])
    before = _errors(replace(empty, most_clock_mhz=None), rows)
    after = np.full(before.shape, np.nan)
    for fold in range(_FOLDS):
        profile, _ = _fitted(empty, rows, fold_of != fold)
        after[:, folds == fold] = _errors(profile, rows)[:, folds == fold]
    families = np.concatenate([np.asarray(numbers_of(each.operations).family) for each in rows])
    return _judged(*_fitted(empty, rows, fold_of >= 0), before, after, families)


def _rows(
    dataset: Dataset,
    mode: str,
    predictor: OperationPredictor,
    clock_mhz: float | None,
    cap_w: float,
    numbers: dict[Operation, int],
) -> _Rows | None:
    """What can be compared of a dataset; `numbers` gets a number for each operation that has none yet."""
    measured = [
        each
        for each in dataset.measurements
        if each.operation.mode == mode and each.usable and not each.operation.is_identity
    ]
    if not measured:
        return None
    found = predictor.predict([each.operation for each in measured], clock_mhz, cap_w)
    some = [each for each, source in zip(measured, found.source, strict=True) if source != "missing"]
    if not some:
        return None
    return _Rows(
        predictor,
        OperationList(each.operation for each in some),
        clock_mhz,
        cap_w,
        np.array([numbers.setdefault(each.operation, len(numbers)) for each in some]),
        np.array([each.time_s for each in some]),
        np.array([each.device_time_s for each in some], dtype=float),  # None is NaN.
        np.array([each.power_w if each.power_usable else None for each in some], dtype=float),
        np.array([each.clock_mhz for each in some], dtype=float),
    )


def _held_mhz(datasets: Sequence[Dataset], gpu: GPU, cap_w: float) -> tuple[float | None, list[float | None]]:
    """The clocks of a board below its cap.

    Returns:
        The highest one, None where it is unknown or the GPU's own; and that of each dataset, None for the highest.
    """
    held: list[float | None] = []
    for dataset in datasets:
        free = [
            each.clock_mhz
            for each in dataset.measurements
            if each.clock_mhz and each.power_w is not None and each.power_w < _FREE * cap_w
        ]
        held.append(float(np.quantile(free, 0.9)) if len(free) >= LEAST_OPERATIONS else dataset.card.clock_mhz)
    most_mhz = math.inf if None in held else max(each for each in held if each is not None)
    least_mhz = (1 - _CLOCK_STEP) * min(most_mhz, gpu.boost_clock_mhz)
    clocks = [each if each is not None and each < least_mhz else None for each in held]
    return most_mhz if most_mhz < (1 - _CLOCK_STEP) * gpu.boost_clock_mhz else None, clocks


def _fitted(
    empty: BoardProfile, rows: Sequence[_Rows], known: NDArray[np.bool_]
) -> tuple[BoardProfile, dict[str, float]]:
    """A profile fitted to some of the operations, and the mean absolute log errors that it expects of others."""
    profile, expected = empty, {}
    for _ in range(_ROUNDS):
        for quantity, names, equations in (("time", TIME_PARTS, _of_time), ("power", ENERGY_PARTS, _of_power)):
            found = [equation for each in rows for equation in equations(each, profile)]
            errors, all_follow, of, judged = (np.concatenate(parts) for parts in zip(*found, strict=True))
            chosen = known[of] & np.isfinite(errors)
            mine = [name for name in names if all_follow[chosen][:, places_of([name])].any()]
            if not mine:
                continue
            follows = all_follow[chosen][:, places_of(mine)]
            before = np.log([profile.factors.get(name, 1.0) for name in mine])
            classes = np.array([_CLASS_OF[name] for name in mine])
            logs, error = _shrunk(errors[chosen] + follows @ before, follows, classes)
            factors = np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG)).tolist()
            profile = replace(profile, factors={**profile.factors, **dict(zip(mine, factors, strict=True))})
            if judged[chosen].any():
                expected[quantity] = float(error[judged[chosen]].mean())
    return profile, expected


def _of_time(rows: _Rows, profile: BoardProfile) -> list[Equations]:
    """Errors of device times where they were measured, and of loops."""
    found, work = rows.on(profile)
    one = np.ones(len(rows.groups))
    slower = work.clock_mhz / np.maximum(found.held_clock_mhz, 1.0)
    on_clock, off_clock = (work.compute_s**3 + work.cache_s**3) * slower**3, work.memory_s**3
    share = on_clock / np.maximum(on_clock + off_clock, _LEAST)
    on_device = rows.follows(memory=1 - share, cycles=share, whole=one)
    busy = found.device_time_s**4 / (found.device_time_s**4 + found.host_time_s**4)
    in_loop = busy[:, None] * on_device + rows.follows(launches=1 - busy)
    timed = np.isfinite(rows.device_s)
    loop_s = np.where(timed & (rows.loop_s <= _SAME * rows.device_s), np.nan, rows.loop_s)
    return [
        (np.log(rows.device_s / found.device_time_s), on_device, rows.groups, timed),
        (np.log(loop_s / found.time_s), in_loop, rows.groups, ~timed),
    ]


def _of_power(rows: _Rows, profile: BoardProfile) -> list[Equations]:
    """Errors of power of loops below the cap, and of dynamic energy of loops at it.

    At the cap power says nothing. But joules above the static ones do: with too many of them a network would be
    predicted at a lower clock than the one that holds its cap.
    """
    (found, work), one = rows.on(profile), np.ones(len(rows.groups))
    dynamic_w = found.dynamic_energy_j / np.maximum(found.time_s, _LEAST)
    below = (rows.power_w < _AT_CAP * rows.cap_w) & (found.power_w < _AT_CAP * rows.cap_w)
    dynamic = np.clip(dynamic_w / np.maximum(found.power_w, _LEAST), 0.0, 1.0)
    static_w = np.maximum(found.power_w - dynamic_w, 0.0)
    above_w = np.maximum(rows.power_w - static_w, _LEAST_ABOVE * static_w)
    # Predicted joules of a loop end where the cap does, which they then do not exceed while the device works; those of
    # its work do not.
    follows = found.dynamic_energy_j > _AT_CAP * work.at(found.held_clock_mhz)[1]
    read = np.isfinite(rows.held_mhz)
    held_mhz = np.where(read, rows.held_mhz, found.held_clock_mhz)
    joules = np.maximum(work.at(held_mhz)[1], _LEAST)
    # How joules follow the voltage, where the clock was read.
    voltage = {}
    for name in VOLTAGE:
        of_curve = {each: profile.factors.get(each, 1.0) * (1 + _NUDGE * (each == name)) for each in VOLTAGE}
        nudged = replace(work, gpu=with_voltage(rows.predictor.gpu, *of_curve.values())).at(held_mhz)[1]
        voltage[name] = np.where(read, np.log(np.maximum(nudged, _LEAST) / joules) / math.log1p(_NUDGE), 0.0)
    at_cap = np.isfinite(rows.power_w) & ~below
    powers = np.where(below, np.log(rows.power_w / found.power_w), np.nan)
    of_loops = {name: dynamic * follows * each for name, each in voltage.items()}
    all_follow = rows.follows(static=1 - dynamic, dynamic=dynamic * follows, **of_loops)
    above = np.where(at_cap, np.log(above_w * rows.loop_s / joules), np.nan)
    above_follow = rows.follows(static=static_w / above_w, dynamic=one, **voltage)
    return [(powers, all_follow, rows.groups, below), (above, above_follow, rows.groups, np.zeros(len(below), bool))]


def _shrunk(errors: FloatArray, follows: FloatArray, classes: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Logs of factors with a variance for each class, by expectation maximization; see the module.

    Args:
        errors: Log errors, shape (equations,).
        follows: How they follow the log of each factor, shape (equations, factors).
        classes: Class of each factor, shape (factors,).

    Returns:
        The logs, shape (factors,), and the absolute error that each equation is then expected to have.
    """
    variances, noise = np.full(len(CLASSES), _FIRST_VARIANCE), max(float(np.var(errors)), _LEAST_NOISE)
    weights: FloatArray = np.ones(len(errors))
    for _ in range(_STEPS):
        weighted = follows.T * weights
        covariance = np.linalg.inv(weighted @ follows / noise + np.diag(1 / variances[classes]))
        logs = covariance @ (weighted @ errors) / noise
        squares = np.bincount(classes, logs**2 + np.diag(covariance), len(CLASSES))
        variances = np.maximum(squares / np.maximum(np.bincount(classes, minlength=len(CLASSES)), 1), _LEAST_VARIANCE)
        unsure = np.einsum("ij,jk,ik->i", follows, covariance, follows)
        off = (errors - follows @ logs) ** 2 + unsure
        noise = max(float(np.mean(weights * off)), _LEAST_NOISE)
        weights = (_TAILS + 1) / (_TAILS + off / noise)
    return logs, np.sqrt(noise + unsure)


def _errors(profile: BoardProfile, rows: Sequence[_Rows]) -> FloatArray:
    """Log errors of QUANTITIES and of loops, shape (4, measurements); NaN where they were not measured.

    Time is the device time where that was measured, and that of the loop elsewhere, as for intervals.
    """
    found = []
    for each in rows:
        predicted, _ = each.on(profile)
        timed = np.isfinite(each.device_s)
        times = each.device_s / predicted.device_time_s, each.loop_s / predicted.time_s
        joules = each.power_w * each.loop_s / predicted.energy_j
        found.append(np.log([np.where(timed, *times), each.power_w / predicted.power_w, joules, times[1]]))
    return np.hstack(found)


def _judged(
    profile: BoardProfile,
    expected: Mapping[str, float],
    before: FloatArray,
    after: FloatArray,
    families: NDArray[np.int64],
) -> BoardProfile:
    """The profile with its errors; without the factors that did not help on operations that were left out."""
    helps = {}
    for name, old, new in zip((*QUANTITIES, "loops"), before, after, strict=True):
        gained = (np.abs(old) - np.abs(new))[np.isfinite(old)]
        # By more than the standard error of the difference.
        helps[name] = bool(gained.size and gained.mean() > gained.std() / math.sqrt(gained.size))
    helps["energy"] = helps["time"] or helps["power"] or helps["loops"]
    kept = {each for name, parts in JUDGED_BY.items() if helps[name] for each in parts}
    # Energy is the product of both, whose errors are taken to be independent.
    expected = {"energy": math.hypot(expected.get("time", 0.0), expected.get("power", 0.0)), **expected}
    improvements, errors = {}, {}
    for name, *both in zip(QUANTITIES, before, after, strict=False):
        known = np.isfinite(both[0])
        if not known.any():
            continue
        old, new = (np.abs(each[known]) for each in both)
        improvements[name] = Improvement(float(old.mean()), expected[name], float(new.mean()), new.size)
        sizes, of = new if helps[name] else old, families[known]
        by_family = {FAMILIES[int(place)]: sizes[of == place] for place in np.unique(of)}
        enough = {family: each for family, each in by_family.items() if len(each) >= _LEAST_FAMILY}
        errors[name] = {family: thinned(each, MOST_ERRORS) for family, each in {ALL: sizes, **enough}.items()}
    return replace(
        profile,
        factors={name: factor for name, factor in profile.factors.items() if name in kept},
        most_clock_mhz=profile.most_clock_mhz if helps["time"] else None,
        improvements=improvements,
        errors=errors,
    )
