"""A learned family at rest: its trees as arrays, and the facts of `LearnedFamily.to_json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ZooError
from ..regressors.serving import regressor_file, stored_regressor
from ..regressors.trees_fitted import trees_of
from ..regressors.xgboost_model import BoostedRegressor
from .learned import LearnedFamily, family_named


def write_family(learned: LearnedFamily) -> dict[str, bytes]:
    """Files of a family that was just fitted.

    Raises:
        MissingDependencyError: The converter is not installed.
        ZooError: It was not fitted, but read from an entry.
    """
    files = {}
    for name, regressor in zip(_names(learned.family.name), (learned.time, learned.unseen_chips), strict=True):
        if not isinstance(regressor, BoostedRegressor):
            raise ZooError("only a predictor that was just trained can be stored", given=type(regressor).__name__)
        files[regressor_file(name)] = trees_of(regressor).to_bytes()
    return files


def read_family(name: str, facts: Mapping[str, Any], files: Mapping[str, bytes]) -> LearnedFamily:
    """What `write_family` wrote.

    Raises:
        ZooError, KeyError, TypeError, ValueError: Files or facts are missing, damaged, or those of other inputs.
    """
    family = family_named(name)
    columns = (len(family.inputs), len(family.shared_columns))
    time, unseen_chips = (
        stored_regressor(files, file, width) for file, width in zip(_names(name), columns, strict=True)
    )
    return LearnedFamily.from_json(name, facts, time, unseen_chips)


def _names(family: str) -> tuple[str, str]:
    return f"{family}-time", f"{family}-unseen-chips"
