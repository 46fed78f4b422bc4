"""How a path answers: what the document says of it, computing in a thread, and encoding."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Query, Request
from starlette.responses import Response

from ..errors import RefusalError, UnknownNameError
from ..remote import wire
from ..rendering.answers import finite
from .answers import Answers
from .networks import TracingNeededError
from .problems import MEDIA_TYPE
from .query_strings import Format

JSON, CSV = "application/json", "text/csv; charset=utf-8"


def media_type_of(accept: str, form: str | None = None) -> str:
    """The media type of an answer: that of `?format=`, or else of the header Accept; JSON by default."""
    if form is not None:
        return CSV if form == "csv" else JSON
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    answered = {"text/csv": CSV, JSON: JSON, wire.MEDIA_TYPE: wire.MEDIA_TYPE}
    return next((answered[part] for part in accepted if part in answered), JSON)


def rendered(
    value: Any, media_type: str, to_dict: Callable[[Any], Any], to_csv: Callable[[Any], str] | None = None
) -> bytes:
    """Encode an answer.

    Args:
        value: The library's answer.
        media_type: Media type, as `media_type_of` returned it.
        to_dict: Function that turns the answer into plain lists and dictionaries.
        to_csv: Function that turns it into CSV; None where there is none, and JSON is sent instead.
    """
    if media_type == wire.MEDIA_TYPE:
        return json_bytes(wire.pack(value))
    if media_type == CSV and to_csv is not None:
        return to_csv(value).encode()
    return json_bytes(to_dict(value))


def json_bytes(value: Any) -> bytes:
    """Encode as strict JSON, in which NaN and infinity become null."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # for integers of more than 64 bits
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False).encode()


_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_CODES = {
    400: "The request is not valid HTTP or JSON",
    401: "The token is missing or unknown",
    408: "The body arrives too slowly, or the answer takes too long",
    413: "The body, the batch or the network is too large",
    422: "A value is not valid; the problem states what was given and what is allowed",
    429: "Too many requests are waiting",
    503: "The zoo is damaged",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {code: {"description": text, **_PROBLEM} for code, text in _CODES.items()}
_NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has this answer already (If-None-Match)"}
}
_MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such name", **_PROBLEM}}
_CSV = {"text/csv": {"schema": {"type": "string"}}}

FormatQuery = Annotated[Format | None, Query(description="json or csv; or ask by the header Accept.")]
Answered = Coroutine[Any, Any, Response]
Answer = TypeVar("Answer")


def answering(model: type[Any], *, as_csv: bool = False) -> dict[str, Any]:
    """Arguments for a route whose answers are cached."""
    ok: dict[str, Any] = {"model": model, "description": "The answer"}
    if as_csv:
        ok["content"] = _CSV
    return {"responses": {**PROBLEMS, **_NOT_MODIFIED, 200: ok}, "response_class": Response, "response_model": None}


def naming(model: type[Any]) -> dict[str, Any]:
    """The same for a route whose path holds a name, which may not exist."""
    arguments = answering(model)
    arguments["responses"] |= _MISSING
    return arguments


async def ask(
    request: Request,
    form: str | None,
    answer: Callable[[Answers], Any],
    to_dict: Callable[[Any], Any],
    to_csv: Callable[[Any], str] | None = None,
    *,
    as_value: bool = True,
) -> Response:
    """Compute and encode an answer in a thread. `as_value` says whether `joulecast.Client` may request exact values."""
    media_type = media_type_of(request.headers.get("accept", ""), form)
    if (to_csv is None and media_type == CSV) or (not as_value and media_type == wire.MEDIA_TYPE):
        media_type = JSON

    def body(answers: Answers) -> bytes:
        return rendered(answer(answers), media_type, to_dict, to_csv)

    return Response(await computed(request, body), media_type=media_type)


async def computed(request: Request, compute: Callable[[Answers], Answer]) -> Answer:
    """Compute in a thread; if the model must be traced, in the process for that."""
    state = request.app.state
    client = request.scope["state"]["client"]
    until_s = time.monotonic() + state.settings.max_seconds
    try:
        answer: Answer = await state.workers.run(
            functools.partial(compute, state.answers),
            seconds=state.settings.max_seconds,
            client=client,
            left=_disconnection(request),
        )
    except TracingNeededError:
        answer = await state.tracers.run(
            functools.partial(compute, state.answers.tracing(state.tracer)),
            seconds=max(0.0, until_s - time.monotonic()),
            client=client,
            left=_disconnection(request),
            stop=state.tracer.stop,
        )
    return answer


async def _disconnection(request: Request) -> None:
    """Wait until the client disconnects. Its request has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def found(answer: Answered) -> Response:
    """Call a function, and answer 404 if the name in the path does not exist."""
    try:
        return await answer
    except UnknownNameError as error:
        raise RefusalError(
            404, "unknown-name", error.what, given=error.given, allowed=error.allowed, hint=error.hint
        ) from error
