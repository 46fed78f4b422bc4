"""The bodies of requests: bounded before they are validated, and large ones parsed by the workers in turn."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from ..errors import RefusalError, unknown_name
from ..predictors.board.profile import BoardProfile
from .problems import invalid, too_large
from .settings import Settings

LARGE_BYTES = 16_000
"""Smaller bodies are parsed in about a millisecond, and need not wait for a worker."""

_PARSING = threading.Lock()
_MOST_IN_TREE = 5_000  # module paths, of which the largest model with a template has 1,300; each takes 0.3 ms in a tree


class _ReadRequest(Request):
    """A request whose body has been parsed already, so that FastAPI uses the question as it is."""

    def __init__(self, request: Request, body: bytes, question: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._bytes = body
        self.question = question

    async def body(self) -> bytes:
        return self._bytes

    async def json(self) -> Any:
        return self.question


async def read(request: Request, body: bytes, model: type[BaseModel]) -> _ReadRequest:
    """Parse a body: a large one in a thread of the workers, because in the event loop it would delay all others.

    Raises JoulecastError: The body is not such a question, or holds more than the limits allow; too many requests wait
    already, or it takes too long.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        hint = "send the header Content-Type: application/json"
        raise RefusalError(415, "media-type", "the body is not declared as JSON", given=media_type, hint=hint)
    state = request.app.state
    parse = partial(_question, model, body, state.settings, state.calibrations)
    if len(body) <= LARGE_BYTES:
        return _ReadRequest(request, body, parse())
    client = request.scope["state"]["client"]
    question = await state.workers.run(parse, seconds=state.settings.max_seconds, client=client)
    return _ReadRequest(request, body, question)


def _question(
    model: type[BaseModel], body: bytes, settings: Settings, calibrations: Mapping[str, BoardProfile]
) -> BaseModel:
    # One at a time: a parser lets no other thread run, and two in turn would keep the event loop waiting for both.
    with _PARSING if len(body) > LARGE_BYTES else contextlib.nullcontext():
        try:
            # Only names of fields are repeated: looking for all texts among earlier ones takes five times as long.
            content = from_json(body, cache_strings="keys")
        except ValueError as error:
            hint = "write the body as one JSON object"
            raise RefusalError(400, "json", "the body is not valid JSON", given=str(error), hint=hint) from error
        _refuse_many(content, settings)
        _name_calibrations(content, calibrations)
        try:
            return model.model_validate(content)
        except ValidationError as error:
            raise invalid(error, "body") from error


def _name_calibrations(content: Any, calibrations: Mapping[str, BoardProfile]) -> None:
    """Put the content of a calibration in the place of its name. A name is never taken for a path.

    Raises:
        UnknownNameError: The service has no calibration of this name.
    """
    if not isinstance(content, dict):
        return
    name = content.get("calibration")
    if isinstance(name, str):
        if name not in calibrations:
            hint = "ask /v1/calibrations, or send the content of the file"
            raise unknown_name("calibration", name[:100], calibrations, hint=hint)
        content["calibration"] = calibrations[name].to_dict()


def _refuse_many(content: Any, settings: Settings) -> None:
    """Refuse long lists before they are validated. Raises RefusalError: A list has more items than it may have."""
    limits = {
        "networks": ("there are too many networks", settings.max_batch),
        "operations": ("there are too many operations", settings.max_operations),
    }
    for name, (what, most) in limits.items() if isinstance(content, dict) else ():
        value = content.get(name)
        if not isinstance(value, list):
            continue
        if len(value) > most:
            raise too_large(what, len(value), most)
        for item in value if name != "operations" else ():
            _refuse_many(item, settings)
        paths = sum(map(_paths, value)) if content.get("tree") else 0
        if paths > _MOST_IN_TREE:
            raise too_large("the operations run in too many modules for an energy tree", paths, _MOST_IN_TREE)


def _paths(item: Any) -> int:
    """Number of module paths of an operation as it was sent, which may be anything."""
    paths = item.get("module_paths") if isinstance(item, dict) else None
    return len(paths) if isinstance(paths, list) else 0
