"""Values that predictions depend on, checked: a card or facts made by hand cannot make predicting fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ZooError
from ...predictors.formats.numbers import number
from ...predictors.networks.composition import HostModel
from ...predictors.networks.learned import MOST_NETWORK_STATIC_W, TF32_FACTORS

_LONGEST_NAME = 200
_MOST_OFFSET_S = 1.0


def name_of(value: Any) -> str:
    """Check the name of an entry, as its card states it.

    Raises:
        ZooError: It is not a short text.
    """
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise _damaged("name", value, "a short text")
    return value


def host_of(value: Mapping[str, Any]) -> HostModel:
    """Host costs of a call inside a network, as a card states them.

    Raises:
        ZooError, KeyError, TypeError: The value is not such a host cost, or is out of range.
    """
    offset = value["offset_s"]
    if type(offset) not in (int, float) or not abs(offset) <= _MOST_OFFSET_S:
        raise _damaged("offset_s", offset, f"within {_MOST_OFFSET_S:g} s")
    return HostModel.from_dict(value)


def network_static_of(facts: Mapping[str, Any]) -> float:
    """Watts in networks in addition to static power, as the facts of an entry state them.

    Entries of GPUs without measured networks may lack the value; they learned none.

    Raises:
        ZooError, TypeError: The value is not such a power.
    """
    static_w = number(facts.get("network_static_w", 0.0))
    if not 0 <= static_w <= MOST_NETWORK_STATIC_W:
        raise _damaged("network_static_w", static_w, f"from 0 to {MOST_NETWORK_STATIC_W:g} W")
    return static_w


def network_tf32_of(facts: Mapping[str, Any]) -> float:
    """Cost of operations in TF32 inside networks over that in loops, as the facts of an entry state it.

    Entries of GPUs without measured networks may lack the value; they learned none.

    Raises:
        ZooError, TypeError: The value is not such a factor.
    """
    factor = number(facts.get("network_tf32_factor", 1.0))
    least, most = TF32_FACTORS
    if not least <= factor <= most:
        raise _damaged("network_tf32_factor", factor, f"from {least:g} to {most:g}")
    return factor


def _damaged(what: str, given: object, allowed: str) -> ZooError:
    return ZooError(
        f"{what} in the card of this zoo entry is damaged",
        given=str(given)[:100],
        allowed=allowed,
        hint="pull it again",
    )
