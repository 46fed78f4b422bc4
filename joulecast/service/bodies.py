"""Large bodies: read into questions by the workers, in turn, and no more of them in memory at once than is allowed."""

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
"""Reading a smaller body takes less than a millisecond, and waits for nobody."""

_SHARE = 4  # a client may have this part of what all may have


class BodiesInMemory:
    """Counts the bytes of large bodies from their coming to their answer.

    Args:
        most_bytes: Of all clients together; one of them may have a quarter of it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes: Counter[str] = Counter()

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return self._bytes.total()

    def add(self, client: str, size_bytes: int) -> None:
        """Count a part of a body.

        Raises:
            RefusalError: The client, or all of them, have too much here already. The part is not counted then.
        """
        mine_bytes = self._bytes[client] + size_bytes
        if mine_bytes > self._most_bytes // _SHARE or self.size_bytes + size_bytes > self._most_bytes:
            raise RefusalError(
                429,
                "busy",
                "too many large bodies are waiting",
                given=f"{self.size_bytes} bytes, {mine_bytes - size_bytes} of them yours",
                allowed=f"{self._most_bytes} bytes, a quarter of them for one client",
                retry_after_s=1,
                hint="ask again in a second",
            )
        self._bytes[client] = mine_bytes

    def remove(self, client: str, size_bytes: int) -> None:
        """The body has been answered."""
        self._bytes[client] -= size_bytes
        if not self._bytes[client]:
            del self._bytes[client]


class _ReadRequest(Request):
    """A request whose body has been read: FastAPI takes the question as it is.

    Args:
        request: The request.
        body: Its body.
        question: What its body says.
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
    """Read a large body where answers are computed: reading it here would stop all others meanwhile.

    Args:
        request: The request, whose body has come.
        body: The body, as JSON.
        model: The question that it should be.

    Raises:
        JoulecastError: It is not such a question; too many wait already, or it takes too long.
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
