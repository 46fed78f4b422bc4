"""BoardProfile: what was measured about one board and its host, as a small file that others may use.

A board differs from its data sheet and from its siblings by a few causes: the rate of a unit (clock, voltage, library),
the bandwidth of its memory, the driver's kernels of a family, the host, the watts of a waiting board. Each is a factor
with one name here, which multiplies a part of the cost of some operations. Factors of units act on the part of the
device time that the unit takes (`LeastTimes`), those of families on the whole. The voltage has no factor but an
exponent: that of its catalogue's curve.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...arrays import FloatArray
from ...checked import integer, number, shown, text
from ...errors import InputError
from ...operations.operation import MODES
from ...rendering.answers import plain
from ...system.regular_files import MOST_BYTES, first_line, is_file, read_json
from ...system.whole_files import whole_file
from ..intervals.operation_spread import ALL
from ..physics.operation_numbers import FAMILIES, KIND_PLACES

UNITS = ("DRAM", "products on tensor cores", "products on other units", "cycles of other operations")
DRAM, *CYCLES = UNITS
LAUNCHES, STATIC, DYNAMIC = tuple(f"launches in {mode}" for mode in MODES), "static power", "dynamic energy"
VOLTAGE = ("lowest voltage", "slope of the voltage")

CLASSES: Mapping[str, tuple[str, ...]] = {
    "units": UNITS,
    "families": tuple(f"{family} in {mode}" for mode in MODES for family in FAMILIES),
    "kinds": tuple(f"kind {kind}" for kind in KIND_PLACES),
    "sizes": tuple(f"tenfold bytes of {family}" for family in FAMILIES),
    **{name: (name,) for name in (*LAUNCHES, STATIC, DYNAMIC, *VOLTAGE)},
    "joules": tuple(f"joules of {family}" for family in FAMILIES),
}
"""Factors that are drawn towards 1 together: their variance is estimated once for all of them."""

WHOLE = (*CLASSES["families"], *CLASSES["kinds"], *CLASSES["sizes"])
JOULES = (DYNAMIC, *CLASSES["joules"])
TIME_PARTS = (*UNITS, *WHOLE, *LAUNCHES)
ENERGY_PARTS = (STATIC, *VOLTAGE, *JOULES)
PARTS = (*TIME_PARTS, *ENERGY_PARTS)
"""Names of all factors that a profile may have."""

JUDGED_BY = {"time": (*UNITS, *WHOLE), "loops": LAUNCHES, "power": ENERGY_PARTS}
"""Factors that a profile has if errors of device times, loops or power are smaller with them. Device times say nothing
of launches."""

ACTING = {"memory": (DRAM,), "cycles": CYCLES, "whole": WHOLE, "launches": LAUNCHES}
ACTING |= {"static": (STATIC,), "dynamic": JOULES, **{name: (name,) for name in VOLTAGE}}
"""Factors that a cost follows by the same share of it."""

_PLACES = {name: place for place, name in enumerate(PARTS)}

KIND, FORMAT = "joulecast calibration", 2

QUANTITIES = ("time", "power", "energy")
MOST_ERRORS = 99
"""Most errors of a quantity and family."""

DAY = re.compile(r"\d{4}-\d\d-\d\d")
"""How days are written."""

_MOST_NAMES = 40
_HINT = "make it again with `joulecast calibrate --out FILE`"


def places_of(names: Collection[str]) -> list[int]:
    """Places of some names in PARTS."""
    return [_PLACES[name] for name in names]


def launches_in(mode: str) -> str:
    """Name of the factor of launches in a mode."""
    return LAUNCHES[MODES.index(mode)]


@dataclass(frozen=True)
class Improvement:
    """Errors of one quantity on operations that were left out, without the profile and with it.

    Args:
        before: Mean absolute log error without the profile.
        expected: The mean absolute log error that the fit expects of operations that it has not seen.
        after: Mean absolute log error with profiles that were fitted to the other operations.
        operations: Number of operations.
    """

    before: float
    expected: float
    after: float
    operations: int


@dataclass(frozen=True, eq=False)
class BoardProfile:
    """Factors that turn predictions for a GPU into those for one board, with the errors that remain.

    Two profiles of the same content are equal.

    Args:
        gpu: Name of the GPU in the catalogue.
        board: Facts of the board: its name by the driver, its power cap.
        software: Versions of joulecast, torch, CUDA and the driver that were measured with.
        predictors: Mode -> name of the predictor whose predictions the factors correct.
        measured: First and last day of the measurements.
        operations: Number of operations that were measured.
        factors: Name of a part -> its factor; one that is not named is 1.
        most_clock_mhz: The highest clock that the board held while it was below its cap; None where it holds the GPU's
            own.
        improvements: time, power and energy, where they were measured -> errors on operations that were left out.
        errors: Quantity -> family, or "all" -> sorted absolute log errors on operations that were left out.
    """

    gpu: str
    board: Mapping[str, str | float]
    software: Mapping[str, str]
    predictors: Mapping[str, str]
    measured: tuple[str, str]
    operations: int
    factors: Mapping[str, float]
    most_clock_mhz: float | None = None
    improvements: Mapping[str, Improvement] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, FloatArray]] = field(default_factory=dict)

    @cached_property
    def sha256(self) -> str:
        """Hash of the content, by which a profile is recognized."""
        plain = json.dumps(self._content(), sort_keys=True, allow_nan=False, default=str)
        return hashlib.sha256(plain.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoardProfile) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def helps(self) -> Mapping[str, bool]:
        """Whether time and power are corrected at all: without a smaller error on what was left out, they are not.

        Energy follows both.
        """
        return {
            "time": any(name in self.factors for name in TIME_PARTS),
            "power": any(name in self.factors for name in ENERGY_PARTS),
        }

    def __str__(self) -> str:
        """One sentence, as notes of predictions say it."""
        if not self.factors and self.most_clock_mhz is None:
            return f"the calibration {self.sha256[:12]} of {self.gpu} changes nothing: it did not help"
        found = [f"{name} {percent(i.before)} to {percent(i.after)} %" for name, i in self.improvements.items()]
        return (
            f"calibrated by {self.operations} operations measured on {self.measured[1]} ({self.sha256[:12]}); mean "
            f"errors on operations left out: {', '.join(found)}"
        )

    def notes(self, predictor: str, mode: str) -> Iterator[str]:
        """What a prediction by a predictor in a mode says about its calibration."""
        yield str(self)
        if self.most_clock_mhz is not None:
            yield f"the calibrated board held {self.most_clock_mhz:.0f} MHz at most, also below its power cap"
        meant = self.predictors.get(mode)
        if meant is None:
            yield f"the calibration has no measurements in {mode}: its factors come from the other mode"
        elif predictor != meant:
            yield f"the calibration corrects {meant}: how well its factors hold for {predictor} was not measured"

    def check_gpu(self, name: str) -> None:
        """Refuse the name of another GPU than the one that was measured. Raises InputError: it is another GPU."""
        if name != self.gpu:
            raise InputError(
                "this calibration is of another GPU",
                given=name,
                allowed=self.gpu,
                hint=f"predict for {self.gpu}, or measure a {name} with `joulecast calibrate`",
            )

    def of_gpu(self, name: str) -> BoardProfile | None:
        """The profile for its own GPU, and None for the others that this is compared with."""
        return self if name == self.gpu else None

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain lists and dictionaries, with its hash."""
        return {**self._content(), "sha256": self.sha256}

    def _content(self) -> dict[str, Any]:
        # As floats: a program in another language may have written 700.0 as 700.
        board = {name: each if isinstance(each, str) else float(each) for name, each in self.board.items()}
        return {
            "kind": KIND,
            "format": FORMAT,
            **{each.name: plain(getattr(self, each.name)) for each in fields(self)},
            "board": board,
        }

    def write(self, path: Path) -> None:
        """Write the profile to a file, which `find_profile` reads. Raises InputError: the file cannot be written."""
        try:
            with whole_file(path) as unfinished:
                unfinished.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(
                "the calibration cannot be written",
                given=f"{path}: {error.strerror}",
                allowed="a new file in a folder that may be written to",
                hint="give --out another name",
            ) from error


Calibrated: TypeAlias = "str | Path | Mapping[str, Any] | BoardProfile"
"""A profile, its content, or the path of its file."""


def find_profile(wanted: Calibrated | None) -> BoardProfile | None:
    """Find the calibration that a user gives.

    Raises InputError: it is no calibration, has another version, or was changed since it was made.
    """
    if wanted is None or isinstance(wanted, BoardProfile):
        return wanted
    if isinstance(wanted, Mapping):
        return _read(wanted, "the calibration that was sent")
    if not isinstance(wanted, str | Path) or not is_file(Path(wanted)):
        raise InputError(
            "there is no such calibration",
            given=str(wanted)[:200],
            allowed="the path of a file that `joulecast calibrate --out FILE` wrote",
            hint="measure this board with `joulecast calibrate --out FILE`",
        )
    return _read(read_json(Path(wanted), MOST_BYTES, "this calibration"), str(wanted))


def profile_among(wanted: Calibrated | None, gpus: Iterable[str]) -> BoardProfile | None:
    """Find the calibration for a comparison of GPUs, in which it holds for its own GPU.

    Raises InputError: it is no calibration, see `find_profile`, or of none of the GPUs.
    """
    profile, names = find_profile(wanted), list(gpus)
    if profile is not None and names and profile.gpu not in names:
        profile.check_gpu(names[0])
    return profile


def profiles_in(folder: str | Path) -> dict[str, BoardProfile]:
    """The calibrations in a folder, by the names of their files without .json.

    Raises InputError: there is no such folder, it has no calibration, or a JSON file in it is none.
    """
    found = {path.stem: find_profile(path) for path in sorted(Path(folder).glob("*.json"))}
    if not found:
        raise InputError(
            "this folder has no calibrations",
            given=str(folder),
            allowed="a folder with files that `joulecast calibrate --out FILE.json` wrote",
            hint="measure a board with `joulecast calibrate --out FOLDER/NAME.json`",
        )
    return {name: profile for name, profile in found.items() if profile is not None}


def _read(value: Any, where: str) -> BoardProfile:
    """The profile of checked values: every field is there, and every number within its range."""
    try:
        if not isinstance(value, Mapping) or value.get("kind") != KIND:
            raise ValueError(f'its "kind" is not "{KIND}"')
        if type(value.get("format")) is not int or value["format"] != FORMAT:
            raise InputError(
                "this calibration has another version", given=shown(value.get("format")), allowed=FORMAT, hint=_HINT
            )
        if set(value) != {"kind", "format", "sha256", *_FIELDS}:
            off = map(str, set(value) ^ {"kind", "format", "sha256", *_FIELDS})
            raise ValueError(f"other fields than expected: {', '.join(sorted(off))}"[:200])
        profile = BoardProfile(**{name: checked(value[name]) for name, checked in _FIELDS.items()})
        if profile.sha256 != value["sha256"]:
            raise InputError(
                "this calibration was changed after it was made",
                given=f"{where}: its content has the hash {profile.sha256[:12]}, not {shown(value['sha256'])[:14]}",
                allowed="a file as `joulecast calibrate` wrote it",
                hint=_HINT,
            )
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "this is no calibration",
            given=f"{where}: {first_line(error)}"[:300],
            allowed="a file that `joulecast calibrate --out FILE` wrote",
            hint=_HINT,
        ) from error
    return profile


def _each(checked: Callable[[Any], Any], names: Sequence[str] | None = None) -> Callable[[Any], dict[str, Any]]:
    """Checks an object whose values are all alike, and whose names are among those that are given."""

    def named(name: Any) -> str:
        if names is not None and name not in names:
            raise ValueError(f"{shown(name)} is none of {', '.join(names[:5])} ...")
        return text(name, 60)

    def read(value: Any) -> dict[str, Any]:
        most = _MOST_NAMES if names is None else len(names)
        if not isinstance(value, Mapping) or len(value) > most:
            raise TypeError(f"an object of at most {most} values is expected, not {shown(value)}")
        return {named(name): checked(each) for name, each in value.items()}

    return read


def _days(value: Any) -> tuple[str, str]:
    first, last = (text(each, 10) for each in value)
    if not DAY.fullmatch(first) or not DAY.fullmatch(last):
        raise ValueError("its days are not YYYY-MM-DD")
    return first, last


def _improvement(value: Any) -> Improvement:
    errors = {each: number(value[each], 0.0, 20.0) for each in ("before", "expected", "after")}
    return Improvement(**errors, operations=integer(value["operations"], 1, 10**6))


def _errors(value: Any) -> FloatArray:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_ERRORS:
        raise ValueError(f"1 to {MOST_ERRORS} errors are expected, not {shown(value)}")
    return np.sort([number(each, 0.0, 20.0) for each in value])


def _by_family(value: Any) -> dict[str, FloatArray]:
    found = _each(_errors)(value)
    if ALL not in found:
        raise ValueError(f'errors lack "{ALL}"')
    return found


# Field -> what checks its value in a file, and reads it.
_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "gpu": lambda value: text(value, 100),
    "board": _each(lambda value: number(value) if isinstance(value, int | float) else text(value, 200)),
    "software": _each(lambda value: text(value, 100)),
    "predictors": _each(lambda value: text(value, 200), MODES),
    "measured": _days,
    "operations": lambda value: integer(value, 1, 10**6),
    # A board that differs by more is another GPU, or was measured wrongly.
    "factors": _each(lambda value: number(value, 0.1, 10.0), PARTS),
    "most_clock_mhz": lambda value: None if value is None else number(value, 1.0, 10_000.0),
    "improvements": _each(_improvement, QUANTITIES),
    "errors": _each(_by_family, QUANTITIES),
}


def percent(log_error: float) -> str:
    """A mean absolute log error as a percentage, in text."""
    return f"{100 * math.expm1(log_error):.1f}"
