"""Requests to a service: arguments of the library's functions as JSON, under the names that the service gives them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..hardware import GPU, find_gpu, gpus
from ..hardware.host import USUAL, find_host, hosts
from ..operations.inputs import Inputs, shape_to_json
from ..operations.network import Network
from ..operations.operation_list import checked_operations
from ..predictors.board.profile import find_profile
from ..system.regular_files import is_file

_MOST_BYTES = 2_000_000  # of many networks in a request: half of what a service takes by default
_MOST_NETWORKS = 1_000
_NAME = re.compile(r"[\w -]{1,100}")  # no path, and no file with an ending
NAMES = {"clock": "clock_mhz", "clocks": "clocks_mhz"}
ONLY_HERE = ("operators", "whitelist", "cluster")
_OF_LISTED = ("operations", "name", "input_shape", "dropped", "assumptions")
_OF_EXTRACTION = ("input_shape", "cache_length", "assume", "model_options")


def question_of(function: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the request for a call of one of the library's functions.

    Args:
        function: The function, whose signature says which arguments there are.
        given: Its positional arguments.
        options: Its keyword arguments.

    Raises:
        InputError: A service cannot be sent one of the arguments.
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
        # A service refuses an optimizer with operations, as the library does.
        dropped = {*_OF_EXTRACTION, *(["optimizer"] if arguments["optimizer"] is None else [])}
        rest = {name: value for name, value in arguments.items() if name not in dropped}
        return {**{name: content[name] for name in _OF_LISTED}, **_as_json(rest)}
    return _as_json(arguments)


def pieces(networks: Iterable[Any]) -> Iterator[list[dict[str, Any]]]:
    """Divide many networks into lists that fit into a request each; at least one list, which may be empty.

    Networks are read once, and not stored. Raises InputError: One of them is no name, Network or list of operations.
    """
    piece: list[dict[str, Any]] = []
    size_bytes = 0
    for model in networks:
        content = {"model": model} if isinstance(model, str) else _network(model).to_dict()
        network = {name: content[name] for name in ("model", "operations", "name", "dropped") if name in content}
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
    """The name or factor of a host. A profile is read here, because the service needs only its factor."""
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

    Raises:
        InputError: No GPU is given, or one with figures of its own, which the service would take for its namesake.
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
    "gpus": lambda value: None if value is None else [gpu_name(gpu) for gpu in _several(value)],
    "clocks": lambda value: None if value is None else _plain(_several(value)),
    "calibration": _calibration,
    "host": _host,
    "input_shape": lambda value: None if value is None else shape_to_json(Inputs.of(value).shape),
    "operation": lambda value: checked_operations([value])[0].to_dict(),
    **dict.fromkeys(("networks", "operations"), lambda value: value),  # divided and checked by the client
}
"""Argument -> how it becomes JSON, where it is more than plain values."""
