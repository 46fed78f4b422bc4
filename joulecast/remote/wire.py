"""Questions and answers as JSON, between the client and the service.

A question has the arguments of one of the library's functions, under the names that the service gives them. Answers are
the library's values, field by field: `unpack` creates instances of the classes in the table below, from their fields,
and nothing else. So data from the network can contain wrong values, but cannot run code.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import InputError, JoulecastError
from ..generation.choices import GenerationChoice, GenerationChoices
from ..generation.deployment import GenerationMemory
from ..generation.images.predict import ImagePrediction
from ..generation.prediction import GenerationPrediction
from ..hardware import find_gpu, gpus
from ..hardware.gpu import GPU, IdleCurve, VoltageCurve
from ..hardware.host import USUAL, find_host, hosts, is_wait
from ..operations.entry import Dropped, DroppedWork, Entry
from ..operations.inputs import Inputs, shape_to_json
from ..operations.network import Network, ParameterBytes
from ..operations.operation import Operation
from ..operations.operation_list import checked_operations
from ..predictors.board.profile import find_profile
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
from ..system.regular_files import is_file
from ..traffic import ServingSimulation

_MOST_BYTES = 2_000_000  # of many networks in a request: half of what a service takes by default
_MOST_NETWORKS = 1_000
_NAME = re.compile(r"[\w -]{1,100}")  # no path, and no file with an ending
NAMES = {"clock": "clock_mhz", "clocks": "clocks_mhz"}
ONLY_HERE = ("operators", "whitelist", "cluster")
_OF_MANY = ("operations", "name", "dropped", "channels_last", "parameter_bytes")
_OF_LISTED = (*_OF_MANY, "input_shape", "assumptions")


def question_of(function: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the request for a call of one of the library's functions, with these arguments.

    Raises InputError: a service cannot be sent one of the arguments.
    """
    bound = inspect.signature(function).bind(*given, **options)
    bound.apply_defaults()
    arguments = bound.arguments
    for name in ONLY_HERE:
        if name in arguments and arguments.pop(name) is not inspect.signature(function).parameters[name].default:
            raise InputError(
                "a service cannot be sent this argument",
                given=name,
                hint=f"call joulecast.{function.__name__} without a service",
            )
    if "model" in arguments and not isinstance(arguments["model"], str):
        if "mode" not in arguments:
            raise _not_sendable(arguments["model"])
        content = _network(arguments.pop("model")).to_dict()
        return {**_as_json(arguments), **{name: content[name] for name in _OF_LISTED if name in content}}
    return _as_json(arguments)


def pieces(networks: Iterable[Any]) -> Iterator[list[dict[str, Any]]]:
    """Divide many networks into lists that fit into a request each; at least one list, which may be empty.

    Networks are read once, and not stored. Raises InputError: One of them is no name, Network or list of operations.
    """
    piece: list[dict[str, Any]] = []
    size_bytes = 0
    for model in networks:
        content = {"model": model} if isinstance(model, str) else _network(model).to_dict()
        network = {name: content[name] for name in ("model", *_OF_MANY) if name in content}
        added_bytes = len(json.dumps(network))
        if piece and (size_bytes + added_bytes > _MOST_BYTES or len(piece) == _MOST_NETWORKS):
            yield piece
            piece, size_bytes = [], 0
        piece.append(network)
        size_bytes += added_bytes
    yield piece


def _as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {NAMES.get(name, name): _CONVERSIONS.get(name, _plain)(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    """Mappings as dictionaries, and other collections as lists of plain numbers and texts."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return dict(value) or None
    return [each.item() if hasattr(each, "item") else each for each in value] if isinstance(value, Iterable) else value


def _several(value: Any) -> Any:
    """A single clock or GPU as a list of one."""
    return [value] if isinstance(value, str | GPU) or not isinstance(value, Iterable) else value


def _host(value: Any) -> str | float:
    """The name or factor of a host, or how long engines wait for it. A profile is read here, for its factor."""
    if is_wait(value):
        return str(value)
    host = find_host(value)
    return host.name if host is USUAL or host.name in hosts() else host.factor


def _calibration(value: Any) -> dict[str, Any] | str | None:
    """The content of a calibration, whose file is read here; or the name of one that the service has."""
    if isinstance(value, str) and _NAME.fullmatch(value) and not is_file(Path(value)):
        return value
    profile = find_profile(value)
    return None if profile is None else profile.to_dict()


def gpu_name(gpu: str | GPU | None) -> str:
    """The name of a GPU that is given by name or as an object.

    Raises InputError: no GPU is given, or one with figures of its own, which the service would take for its namesake.
    """
    if isinstance(gpu, str):
        return gpu
    board = find_gpu(gpu)
    if gpus().get(board.name) != board:
        raise InputError(
            "a service predicts the GPUs of its own catalogue only",
            given=f"{board.name} with figures of its own",
            allowed="a name of the catalogue; `joulecast gpus` lists them",
            hint="predict without a service: joulecast.predict takes such a GPU",
        )
    return board.name


def _network(model: Any) -> Network:
    if isinstance(model, Network):
        return model
    if not isinstance(model, Sequence):
        raise _not_sendable(model)
    return Network.of(model)


def _not_sendable(model: Any) -> InputError:
    return InputError(
        "a service cannot be sent this model",
        given=type(model).__name__,
        allowed="a name, a Network, a list of (Operation, count)",
        hint="joulecast.extract(model, input_shape) makes a Network of it",
    )


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "gpu": lambda value: [*map(gpu_name, value)] if isinstance(value, list | tuple) else gpu_name(value),
    "gpus": lambda value: value if value is None or isinstance(value, int) else [*map(gpu_name, _several(value))],
    "clocks": lambda value: None if value is None else _plain(_several(value)),
    "calibration": _calibration,
    "host": _host,
    "input_shape": lambda value: None if value is None else shape_to_json(Inputs.of(value).shape),
    "operation": lambda value: checked_operations([value])[0].to_dict(),
    **dict.fromkeys(("networks", "operations"), lambda value: value),  # divided and checked by the client
}
"""Argument -> how it becomes JSON, where it is more than plain values."""


MEDIA_TYPE = "application/vnd.joulecast.v1+json"

_TAG = "$"
CLASSES: Mapping[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        *(Prediction, OperationCost, OperationPredictions, GPU, IdleCurve, VoltageCurve),
        *(Coverage, Dropped, DroppedWork, Entry, Network, NetworkPredictions, ParameterBytes, Uncovered),
        *(Interval, NetworkSpread, OperationIntervals, SentOperationSpread),
        *(Contribution, Explanation, Factor, Neighbour, Choice, Choices, LeftOut, Sweep, Tariff),
        *(GenerationChoice, GenerationChoices, GenerationMemory, GenerationPrediction, ImagePrediction),
        *(Layout, Part, Run, RunChoices, ServingSimulation),
    )
}
"""Name -> class of what is sent."""
# Fields that are not sent; the receiver uses their defaults.
_LEFT_BEHIND = frozenset({"work", "board"})


def pack(value: Any) -> Any:
    """Convert a value to what JSON can hold.

    Raises TypeError: the class of the value is not in the table, which is a mistake in the code.
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
        case ParameterBytes():
            return {_TAG: "ParameterBytes", **value._asdict()}
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

    Raises InputError: the argument is not a result of `pack` in this version.
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
            return np.array([math.nan if item is None else item for item in content["values"]])
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
