"""The paths under /v1 that answer questions about models, networks, operations, text, images and training.

Every answer is computed in a thread, and encoded as JSON, CSV, or as the exact values for `joulecast.Client`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from ..generation.choices import GenerationChoices
from ..operations.network import Network
from ..predictors.networks.prediction import Prediction
from ..remote import wire
from ..rendering.answers import finite
from . import caches, networks, problems, schemas
from .answers import Answers

_PROBLEM = {"content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
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

FormatQuery = Annotated[
    Literal["json", "csv"] | None, Query(description="json, or csv of what is a table; or ask by the header Accept.")
]
Answer = TypeVar("Answer")


class Json(JSONResponse):
    """An answer as strict JSON, in which NaN and infinity become null."""

    def render(self, content: Any) -> bytes:
        """The bytes of plain lists and dictionaries."""
        return json_bytes(content)


def answering(schema: str, *, as_csv: bool = False, named: bool = False) -> dict[str, Any]:
    """Arguments for a route whose answers are cached, and have a schema of answers.toml.

    `named`: Whether its path holds a name, which may not exist.
    """
    ok: dict[str, Any] = {"model": schemas.SCHEMAS[schema], "description": "The answer"}
    if as_csv:
        ok["content"] = {"text/csv": {"schema": {"type": "string"}}}
    responses = {**PROBLEMS, **_NOT_MODIFIED, **(_MISSING if named else {}), 200: ok}
    return {"responses": responses, "response_class": Json, "response_model": None}


async def ask(
    request: Request, form: str | None, answer: Callable[[Answers], Any], to_dict: Callable[[Any], Any]
) -> Response:
    """Compute and encode an answer in a thread."""
    accepted = caches.media_type_of(request.headers.get("accept", ""), form)

    def encoded(answers: Answers) -> tuple[bytes, str]:
        value = answer(answers)
        if accepted == caches.CSV and hasattr(value, "to_csv"):
            return bytes(value.to_csv(), "utf-8"), caches.CSV
        if accepted == wire.MEDIA_TYPE:
            return json_bytes(wire.pack(value)), accepted
        return json_bytes(to_dict(value)), caches.JSON

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


def json_bytes(value: Any) -> bytes:
    """Encode as strict JSON, in which NaN and infinity become null."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # for integers of more than 64 bits
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False).encode()


def _to_dict(answer: Any, question: Any) -> dict[str, Any]:
    """An answer as plain lists and dictionaries, with what only some of them have."""
    if isinstance(answer, Prediction):
        return answer.to_dict(tree=question.tree)
    if isinstance(answer, GenerationChoices):  # All ways, because a plot shows them.
        return {**answer.to_dict(), "rows": [row.to_dict() for row in answer.rows]}
    plain: dict[str, Any] = answer.to_dict()
    return plain


asked = APIRouter(prefix="/v1", route_class=caches.CachedRoute)


def _add(path: schemas.Asked) -> None:
    """Add a path with a function that answers it, whose signature tells FastAPI what it takes."""
    answers = getattr(Answers, path.name)
    is_table = hasattr(get_type_hints(answers)["return"], "to_csv")
    options = {**answering(path.answer, as_csv=is_table), "tags": [path.tag]}

    async def post(request: Request, question: Any, format: FormatQuery = None) -> Response:  # noqa: A002
        to_dict = functools.partial(_to_dict, question=question)
        return await ask(request, format, lambda mine: answers(mine, question), to_dict)

    post.__name__, post.__doc__ = path.name, answers.__doc__
    post.__annotations__["question"] = path.question
    asked.post(f"/{path.name}", **options)(post)


for _each in schemas.PATHS.values():
    _add(_each)


_BYTES = {"type": "string", "format": "binary"}


@asked.post(
    "/extract/file",
    **answering("NetworkAnswer"),
    tags=["models"],
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _BYTES}}}},
)
async def extract_file(request: Request, query: Annotated[networks.FileQuery, Query()]) -> Response:
    """List the operations of a model in a file: .onnx, .pt2, or the config.json of a transformer, which is the body."""
    content = await request.body()
    return await ask(request, None, lambda a: a.networks.of_file(query, content), Network.to_dict)
