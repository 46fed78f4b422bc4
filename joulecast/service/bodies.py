"""Large request bodies: parsed by the workers in turn, with a limit on the memory of all of them together."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ..errors import RefusalError
from .problems import validation_problem

LARGE_BYTES = 64_000
"""Smaller bodies are parsed in less than a millisecond, and need not wait for a worker."""

_SHARE = 4  # one client may use this fraction of the limit for all


class BodiesInMemory:
    """Counts the bytes of large bodies from their arrival until they are answered.

    Args:
        most_bytes: Limit for all clients together; one client may use a quarter of it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes: Counter[str] = Counter()

    @property
    def size_bytes(self) -> int:
        """Bytes of large bodies in memory."""
        return self._bytes.total()

    def add(self, client: str, size_bytes: int) -> None:
        """Count a part of a body that has arrived.

        Raises:
            RefusalError: The limit of the client or of all clients is exceeded. The part is not counted then.
        """
        mine_bytes = self._bytes[client] + size_bytes
        if mine_bytes > self._most_bytes // _SHARE or self.size_bytes + size_bytes > self._most_bytes:
            raise RefusalError(
                429,
                "busy",
                "too many large bodies are waiting",
                given=f"{self.size_bytes} bytes, of which {mine_bytes - size_bytes} are yours",
                allowed=f"{self._most_bytes} bytes, and a quarter of that per client",
                retry_after_s=1,
                hint="try again in a second",
            )
        self._bytes[client] = mine_bytes

    def remove(self, client: str, size_bytes: int) -> None:
        """Stop counting a body that has been answered."""
        self._bytes[client] -= size_bytes
        if not self._bytes[client]:
            del self._bytes[client]


class _ReadRequest(Request):
    """A request whose body has been parsed already, so that FastAPI uses the question as it is.

    Args:
        request: The request.
        body: Bytes of the body.
        question: The question parsed from the body.
    """

    def __init__(self, request: Request, body: bytes, question: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._bytes = body
        self._question = question

    async def body(self) -> bytes:
        return self._bytes

    async def json(self) -> Any:
        return self._question


async def read_apart(request: Request, body: bytes, model: type[BaseModel]) -> Request:
    """Parse a large body in a thread of the workers, because parsing it in the event loop would delay all others.

    Args:
        request: The request, whose body has arrived.
        body: The body, as JSON.
        model: Class of the question that it should hold.

    Raises:
        JoulecastError: The body is not such a question, too many requests wait already, or it takes too long.
    """
    state = request.app.state
    question = await state.workers.run(
        partial(_question, model, body),
        seconds=state.settings.max_seconds,
        client=request.scope["state"]["client"],
    )
    return _ReadRequest(request, body, question)


def _question(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise validation_problem(RequestValidationError(faults)) from error
