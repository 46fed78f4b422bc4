"""Conversion of the library's values to JSON and back, field by field, for the client and the service.

`unpack` creates instances of the classes in the table below, from their fields, and nothing else. So data from the
network can contain wrong values, but cannot run code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from ..errors import InputError, JoulecastError
from ..generation.choices import GenerationChoice, GenerationChoices
from ..generation.deployment import GenerationMemory
from ..generation.images.predict import ImagePrediction
from ..generation.prediction import GenerationPrediction
from ..hardware.gpu import GPU, IdleCurve, VoltageCurve
from ..operations.entry import Dropped, DroppedWork, Entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.explanation import Contribution, Explanation, Factor, Neighbour
from ..predictors.intervals.network_calibration import Interval, NetworkSpread
from ..predictors.intervals.operation_spread import OperationIntervals, OperationSpread, SentOperationSpread
from ..predictors.networks.costs import Coverage, OperationCost, Uncovered
from ..predictors.networks.many import NetworkPredictions
from ..predictors.networks.prediction import Prediction
from ..predictors.operation_predictions import OperationPredictions
from ..queries import Choice, Choices, LeftOut, Sweep
from ..queries.objectives import Tariff
from ..runs import Layout, Part, Run
from ..runs.choosing import RunChoices
from ..traffic import ServingSimulation

MEDIA_TYPE = "application/vnd.joulecast.v1+json"

_TAG = "$"
_HARDWARE = (GPU, IdleCurve, VoltageCurve)
_NETWORKS = (Coverage, Dropped, DroppedWork, Entry, Interval, Network, NetworkPredictions, NetworkSpread, Uncovered)
_OPERATIONS = (OperationCost, OperationIntervals, OperationPredictions, SentOperationSpread)
_EXPLAINED = (Contribution, Explanation, Factor, Neighbour)
_CHOSEN = (Choice, LeftOut, Sweep, Tariff)
_SERVED = (GenerationChoice, GenerationMemory, GenerationPrediction, ImagePrediction, ServingSimulation)
_TRAINED = (Layout, Part, Run)
CLASSES: Mapping[str, type[Any]] = {
    cls.__name__: cls
    for cls in (Prediction, *_HARDWARE, *_NETWORKS, *_OPERATIONS, *_EXPLAINED, *_CHOSEN, *_SERVED, *_TRAINED)
}
"""Name -> class of what is sent."""
# Fields that are not sent; the receiver uses their defaults.
_LEFT_BEHIND = frozenset({"work"})


def pack(value: Any) -> Any:
    """Convert a value to what JSON can hold.

    Raises:
        TypeError: The class of the value is not in the table, which is a mistake in the code.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_TAG: "float", "value": str(value)}
        case Operation():
            return {_TAG: "Operation", **value.to_dict()}
        case Choices():
            return {_TAG: "Choices", "choices": [*map(pack, value)], "left_out": pack(value.left_out)}
        case RunChoices():
            # All other rows would be hundreds of predictions with their operations.
            chosen = {id(run) for run in (*value, *value.pareto())}
            runs = [pack(run) for run in value.rows if id(run) in chosen]
            return {_TAG: "RunChoices", "rows": runs, "left_out": pack(value.left_out), "objective": value.objective}
        case GenerationChoices():
            return {_TAG: "GenerationChoices", "rows": [*map(pack, value.rows)], "left_out": pack(value.left_out)}
        case Mapping():
            return {_TAG: "map", "items": [[pack(key), pack(item)] for key, item in value.items()]}
        case list() | tuple():
            return [pack(item) for item in value]
        case np.ndarray():
            return {_TAG: "array", "values": [None if math.isnan(item) else item for item in value.tolist()]}
        case np.generic():
            return pack(value.item())
    name = type(value).__name__
    if is_dataclass(value) and CLASSES.get(name) is type(value):
        sent = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in _LEFT_BEHIND}
        # The table in which a spread looks up errors is large, so only the errors that were looked up are sent.
        if isinstance(spread := sent.get("spread"), OperationSpread):
            sent["spread"] = spread.as_sent(cast(OperationPredictions, value))
        return {_TAG: name, **{each: pack(item) for each, item in sent.items()}}
    raise TypeError(f"{name} cannot be sent")


def unpack(value: Any) -> Any:
    """Convert the result of `pack` back to the value; lists become tuples.

    Raises:
        InputError: The argument is not a result of `pack` in this version.
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
        case "GenerationChoices":
            return GenerationChoices(unpack(content["rows"]), unpack(content["left_out"]))
        case "RunChoices":
            return RunChoices(unpack(content["rows"]), unpack(content["left_out"]), content["objective"])
        case "Operation":
            return Operation.from_dict(content)
    if tag not in CLASSES:
        raise _other_version(repr(tag))
    return CLASSES[tag](**{name: unpack(item) for name, item in content.items()})


def _other_version(given: str) -> InputError:
    return InputError(
        "this answer is not of a kind that this version of joulecast knows",
        given=given,
        hint="install the version of joulecast that the service runs: GET /v1/version says which",
    )
