"""Connection: sends questions to a service over HTTP, and turns refusals into the library's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from ..errors import ERRORS_BY_PROBLEM, PROBLEM_PREFIX, InputError, JoulecastError, ServiceError

LOCAL = "http://127.0.0.1:8000"
_OTHER_PROGRAM = "see that `joulecast serve`, and no other program, answers at this address"
_MOST_BYTES = 256 << 20  # of an answer; that of a batch with all its operations is ten times smaller

Answer = TypeVar("Answer")


class Connection:
    """Sends questions to a service. It can be used from several threads: each request opens a connection of its own.

    Args:
        url: URL of the service, including the path prefix of a proxy if there is one.
        token: Token that the service accepts; None if it requires no token.
        timeout_s: Longest time in seconds to wait for a complete answer.

    Raises:
        InputError: The text is not the URL of a service.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError("this is not the URL of a service", given=url, allowed=f"such as {LOCAL}")
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s

    def ask(self, path: str, question: Mapping[str, Any], kind: type[Answer]) -> Answer:
        """The answer to a question, as a value of the library.

        Args:
            path: Path under /v1.
            question: Fields of the body.
            kind: Class of the answer.

        Raises:
            JoulecastError: The error that the library would raise, or a ServiceError.
        """
        from . import wire

        answer = self.request(path, question, wire.MEDIA_TYPE)
        try:
            value = wire.unpack(answer)
            if not isinstance(value, kind):
                raise TypeError(f"{type(value).__name__}, where {kind.__name__} was asked for")
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise self._no_answer(error) from error
        return value

    def request(self, path: str, question: Mapping[str, Any] | None, accept: str) -> Any:
        """The answer to a request, as plain lists and dictionaries.

        Args:
            path: Path under /v1.
            question: Body of the request; None for a GET.
            accept: Media type of the answer.

        Raises:
            JoulecastError: The error that the library would raise, or a ServiceError.
        """
        # These modules are slow to import, and local predictions do not need them.
        from http.client import HTTPException
        from urllib.request import Request

        from ..system.fetching import fetch

        headers = {"Accept": accept}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None
        if question is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(question).encode()
        # The scheme was checked when the client was made.
        request = Request(f"{self.url}/v1/{path}", body, headers)  # noqa: S310
        try:
            # Redirects are not followed: a service never redirects, and the token must not reach another host.
            status, answer = fetch(request, seconds=self._timeout_s, most_bytes=_MOST_BYTES)
            if status == 200:
                return json.loads(answer)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ServiceError(
                "the service does not answer",
                given=f"{self.url}: {reason}",
                hint="is `joulecast serve` running there? GET /v1/ready says",
            ) from error
        except (ValueError, RecursionError) as error:
            raise self._no_answer(error) from error
        raise _refusal(status, answer)

    def _no_answer(self, error: Exception) -> ServiceError:
        return ServiceError(
            "this is not an answer of a joulecast service",
            given=f"{self.url}: {type(error).__name__}: {error}"[:300],
            hint=_OTHER_PROGRAM,
        )


def _refusal(status: int, body: bytes) -> JoulecastError:
    """The error that the library would raise, made from the answer of the service."""
    try:
        problem = json.loads(body)
        kind = problem["type"].removeprefix(PROBLEM_PREFIX)
        parts = {name: problem.get(name) for name in ("given", "allowed", "hint")}
        what = problem["title"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(
            "the service refuses", status=status, given=f"{status}: {body[:200]!r}", hint=_OTHER_PROGRAM
        )
    error = ERRORS_BY_PROBLEM.get(kind)
    return ServiceError(what, status=status, **parts) if error is None else error(what, **parts)
