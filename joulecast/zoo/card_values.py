"""Values of a card that predictions depend on, checked: a card that was made by hand cannot make predicting fail."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import ZooError
from ..predictors.composition import HostModel

_LONGEST_NAME = 200
_MOST_OFFSET_S = 1.0
_MOST_ERRORS = 100_000
_QUANTITIES = ("time", "energy", "power", "edp")


def name_of(value: Any) -> str:
    """The name of an entry.

    Raises:
        ZooError: It is none.
    """
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise _damaged("name", value, "a short text")
    return value


def host_of(value: Mapping[str, Any]) -> HostModel:
    """What the host costs in a network.

    Raises:
        ZooError, KeyError, TypeError: It is none.
    """
    offset = value["offset_s"]
    if type(offset) not in (int, float) or not abs(offset) <= _MOST_OFFSET_S:
        raise _damaged("offset_s", offset, f"within {_MOST_OFFSET_S:g} s")
    return HostModel.from_json(value)


def log_errors_of(value: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Sorted log errors on networks, by quantity; none, or those of all quantities.

    Raises:
        ZooError: They are none.
    """
    if not isinstance(value, dict) or (value and set(value) != set(_QUANTITIES)):
        raise _damaged("log_errors", value, ", ".join(_QUANTITIES))
    found = {}
    for quantity, errors in value.items():
        if not isinstance(errors, list) or len(errors) > _MOST_ERRORS:
            raise _damaged("log_errors", errors, "lists of numbers")
        if not all(type(error) in (int, float) and 0 <= error and math.isfinite(error) for error in errors):
            raise _damaged("log_errors", errors, "numbers from 0")
        found[quantity] = tuple(map(float, errors))
    if len({len(errors) for errors in found.values()}) > 1:
        raise _damaged("log_errors", {name: len(errors) for name, errors in found.items()}, "one error per network")
    return found


def _damaged(what: str, given: object, allowed: str) -> ZooError:
    return ZooError(
        f"{what} in the card of this zoo entry is damaged", given=str(given)[:100], allowed=allowed, hint="pull it again"
    )
