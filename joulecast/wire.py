"""Values of the library as JSON and back, field by field: what the client and the service tell each other.

Only classes of the table below are ever made, from their own fields; so what comes over the wire can be wrong, but
cannot do anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from .errors import InputError, JoulecastError
from .generation.memory import GenerationMemory
from .generation.prediction import GenerationPrediction
from .hardware.gpu import GPU, IdleCurve, VoltageCurve
from .operations.dropped import Dropped, DroppedWork
from .operations.network import Entry, Network
from .operations.operation import Operation
from .predictors.explanation import Contribution, Explanation, Neighbour
from .predictors.intervals.network_spread import NetworkSpread, SentNetworkSpread
from .predictors.intervals.operation_spread import OperationIntervals, OperationSpread, SentOperationSpread
from .predictors.networks.operation_cost import OperationCost
from .predictors.networks.prediction import Interval, Prediction
from .predictors.networks.uncovered import Coverage, Uncovered
from .predictors.operation_predictions import OperationPredictions
from .queries import Choice, Choices, LeftOut, Sweep
from .queries.objectives import Tariff

MEDIA_TYPE = "application/vnd.joulecast.v1+json"

_TAG = "$"
_CLASSES: Mapping[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Choice,
        Contribution,
        Coverage,
        Dropped,
        DroppedWork,
        Entry,
        Explanation,
        GPU,
        GenerationMemory,
        GenerationPrediction,
        IdleCurve,
        Interval,
        LeftOut,
        Neighbour,
        Network,
        OperationCost,
        OperationIntervals,
        OperationPredictions,
        Prediction,
        Sweep,
        Tariff,
        SentNetworkSpread,
        SentOperationSpread,
        Uncovered,
        VoltageCurve,
    )
}
# Fields that stay behind, and take their default at the other end.
_LEFT_BEHIND = frozenset({"work"})


def pack(value: Any) -> Any:
    """A value as what JSON can hold.

    Raises:
        TypeError: A class that is not in the table: our own mistake.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_TAG: "float", "value": str(value)}
        case Operation():
            return {_TAG: "Operation", **value.to_json()}
        case Choices():
            return {_TAG: "Choices", "choices": [*map(pack, value)], "left_out": pack(value.left_out)}
        case Mapping():
            return {_TAG: "map", "items": [[pack(key), pack(item)] for key, item in value.items()]}
        case list() | tuple():
            return [pack(item) for item in value]
        case np.ndarray():
            return {_TAG: "array", "values": [None if math.isnan(item) else item for item in value.tolist()]}
        case np.generic():
            return pack(value.item())
    name = type(value).__name__
    if is_dataclass(value) and _CLASSES.get(name) is type(value):
        sent = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in _LEFT_BEHIND}
        # What errors are looked up in is large, and stays; what was looked up goes.
        match sent.get("spread"):
            case NetworkSpread() as spread:
                sent["spread"] = spread.as_sent()
            case OperationSpread() as spread:
                sent["spread"] = spread.as_sent(cast(OperationPredictions, value))
        return {_TAG: name, **{each: pack(item) for each, item in sent.items()}}
    raise TypeError(f"{name} does not travel")


def unpack(value: Any) -> Any:
    """The value that `pack` took; a list becomes a tuple.

    Raises:
        InputError: Something that `pack` of this version does not make.
    """
    if isinstance(value, list):
        return tuple(map(unpack, value))
    if not isinstance(value, dict):
        return value
    try:
        return _tagged(value.get(_TAG), value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, JoulecastError):
            raise
        raise _other_version(repr(value)[:100]) from error


def _tagged(tag: Any, value: dict[str, Any]) -> Any:
    content = {name: item for name, item in value.items() if name != _TAG}
    match tag:
        case "float":
            return float(content["value"])
        case "map":
            return {unpack(key): unpack(item) for key, item in content["items"]}
        case "array":
            return np.array([math.nan if item is None else item for item in content["values"]], dtype=float)
        case "Choices":
            return Choices(unpack(content["choices"]), unpack(content["left_out"]))
        case "Operation":
            return Operation.from_json(content)
    if tag not in _CLASSES:
        raise _other_version(repr(tag))
    return _CLASSES[tag](**{name: unpack(item) for name, item in content.items()})


def _other_version(given: str) -> InputError:
    return InputError(
        "this answer is not of a kind that this version of joulecast knows",
        given=given,
        hint="install the version of joulecast that the service runs: GET /v1/version says which",
    )
