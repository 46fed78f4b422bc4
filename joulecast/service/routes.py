"""The paths under /v1 that answer questions about models, networks, operations, text, images and training."""

from __future__ import annotations

import functools
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ..generation.choices import GenerationChoices
from ..operations.network import Network
from ..predictors.networks.prediction import Prediction
from . import questions
from .answering import FormatQuery, answering, ask
from .answers import Answers
from .caches import CachedRoute
from .networks import FileQuery


def _to_dict(answer: Any, question: Any) -> dict[str, Any]:
    """An answer as plain lists and dictionaries, with what only some of them have."""
    if isinstance(answer, Prediction):
        return answer.to_dict(tree=question.tree)
    if isinstance(answer, GenerationChoices):  # All ways, because a plot shows them.
        return {**answer.to_dict(), "rows": [row.to_dict() for row in answer.rows]}
    plain: dict[str, Any] = answer.to_dict()
    return plain


asked = APIRouter(prefix="/v1", route_class=CachedRoute)


def _add(path: questions.Asked) -> None:
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


for _each in questions.PATHS.values():
    _add(_each)


_BYTES = {"type": "string", "format": "binary"}


@asked.post(
    "/extract/file",
    **answering("NetworkAnswer"),
    tags=["models"],
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _BYTES}}}},
)
async def extract_file(request: Request, query: Annotated[FileQuery, Query()]) -> Response:
    """List the operations of a model in a file: .onnx, .pt2, or the config.json of a transformer, which is the body."""
    content = await request.body()
    return await ask(request, None, lambda a: a.extract_file(query, content), Network.to_dict)
