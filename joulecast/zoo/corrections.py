"""What predictors for any GPU learned, at rest: facts as JSON, and regressors as arrays beside their native form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import ZooError, unknown_name
from ..predictors.any_gpu import BoostedRegressor, Learned
from ..predictors.contract import Correction
from ..predictors.relative import RELATIVE_NAMES
from ..predictors.roofline import Roofline
from ..predictors.serving import regressor_file, stored_regressor, trees_of

Files = Mapping[str, bytes]


class Form(NamedTuple):
    """How one kind of correction is stored.

    Args:
        kind: Its class.
        write: Facts, which are plain lists and dictionaries, and files.
        read: The same backwards; raises ZooError, KeyError, TypeError or ValueError for what it did not write.
    """

    kind: type
    write: Callable[[Any], tuple[dict[str, Any], dict[str, bytes]]]
    read: Callable[[Mapping[str, Any], Files], Correction]


def write_correction(correction: Correction) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Facts and files of a correction that was just fitted.

    Raises:
        ZooError: It was not, but read from an entry.
    """
    (name,) = (name for name, form in FORMS.items() if isinstance(correction, form.kind))
    facts, files = FORMS[name].write(correction)
    return {"predictor": name, **facts}, files


def read_correction(facts: Mapping[str, Any], files: Files) -> Correction:
    """What `write_correction` wrote.

    Raises:
        ZooError, KeyError, TypeError, ValueError: The facts or files are not what it wrote.
    """
    name = facts.get("predictor", "boosting")
    if name not in FORMS:
        raise unknown_name("predictor of a zoo entry", name, FORMS)
    return FORMS[name].read(facts, files)


def _write_trees(learned: Learned) -> tuple[dict[str, Any], dict[str, bytes]]:
    if not isinstance(learned.time, BoostedRegressor):
        raise ZooError("only a predictor that was just trained can be stored", given=type(learned.time).__name__)
    # The native form, to train on from.
    native = bytes(learned.time.model.get_booster().save_raw("ubj"))
    return learned.to_json(), {regressor_file("time"): trees_of(learned.time).to_bytes(), "time.ubj": native}


def _read_trees(facts: Mapping[str, Any], files: Files) -> Learned:
    if facts["inputs"] != list(RELATIVE_NAMES):
        raise ZooError("this zoo entry was trained on other features", hint="train it again")
    return Learned.from_json(facts, stored_regressor(files, "time", len(RELATIVE_NAMES)))


def _write_nothing(correction: Roofline) -> tuple[dict[str, Any], dict[str, bytes]]:
    return {}, {}


def _read_nothing(facts: Mapping[str, Any], files: Files) -> Roofline:
    return Roofline()


FORMS: Mapping[str, Form] = {
    "roofline": Form(Roofline, _write_nothing, _read_nothing),
    "boosting": Form(Learned, _write_trees, _read_trees),
}
"""Predictor, as recipes name it -> how it is stored."""
