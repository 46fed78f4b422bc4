"""How a path answers: what the document says of it, computing in a thread, and encoding as JSON or CSV."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Request
from starlette.responses import Response

from ..errors import RefusalError, UnknownNameError
from .answers import Answers
from .problems import MEDIA_TYPE
from .rendering import CSV, JSON, media_type_of, rendered
from .schemas import SCHEMAS

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

FormatQuery = Annotated[
    Literal["json", "csv"] | None, Query(description="json, or csv of what is a table; or ask by the header Accept.")
]
Answered = Coroutine[Any, Any, Response]
Answer = TypeVar("Answer")


def answering(schema: str, *, as_csv: bool = False) -> dict[str, Any]:
    """Arguments for a route whose answers are cached, and have a schema of answers.toml."""
    ok: dict[str, Any] = {"model": SCHEMAS[schema], "description": "The answer"}
    if as_csv:
        ok["content"] = _CSV
    return {"responses": {**PROBLEMS, **_NOT_MODIFIED, 200: ok}, "response_class": Response, "response_model": None}


def naming(schema: str) -> dict[str, Any]:
    """The same for a route whose path holds a name, which may not exist."""
    arguments = answering(schema)
    arguments["responses"] |= _MISSING
    return arguments


async def ask(
    request: Request,
    form: str | None,
    answer: Callable[[Answers], Any],
    to_dict: Callable[[Any], Any],
) -> Response:
    """Compute and encode an answer in a thread."""
    accepted = media_type_of(request.headers.get("accept", ""), form)

    def encoded(answers: Answers) -> tuple[bytes, str]:
        value = answer(answers)
        media_type = JSON if accepted == CSV and not hasattr(value, "to_csv") else accepted
        return rendered(value, media_type, to_dict), media_type

    body, media_type = await computed(request, encoded)
    return Response(body, media_type=media_type)


async def computed(request: Request, compute: Callable[[Answers], Answer]) -> Answer:
    """Compute in a thread."""
    state = request.app.state
    answer: Answer = await state.workers.run(
        functools.partial(compute, state.answers),
        seconds=state.settings.max_seconds,
        client=request.scope["state"]["client"],
        left=_disconnection(request),
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
