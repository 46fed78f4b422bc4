"""The middleware that every request passes: request id, token, limits on the body, headers, and the log."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import RefusalError
from . import caches, logs, problems
from .settings import Settings

OPEN_PATHS = frozenset({"/v1/health", "/v1/ready", "/v1/openapi.json", "/openapi.json"})
_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"


@dataclass
class RequestChecks:
    """ASGI middleware that checks requests and logs answers.

    Args:
        observe: Function that is called with route, method, status and seconds of every answer.
        large_bytes: Bytes of the large bodies that have not been answered.
    """

    app: ASGIApp
    settings: Settings
    observe: Callable[[str, str, int, float], None]
    large_bytes: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given_id = headers.get("x-request-id", "")
        request_id = given_id if _REQUEST_ID.fullmatch(given_id) else uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        token = self._token(headers)
        state["client"] = _address(scope) if token is None else f"token {token}"
        answer = _Answer(send, request_id, _PAGE_POLICY if _is_page(_path(scope)) else _DATA_POLICY)
        body = _Body(receive, self.settings, self)
        started_s = time.perf_counter()
        try:
            if self.settings.tokens and token is None and not (_path(scope) in OPEN_PATHS or _is_page(_path(scope))):
                raise _stranger(headers)
            length = headers.get("content-length", "")
            if length.isdigit() and int(length) > self.settings.max_body_bytes:
                raise _too_large(int(length), self.settings)
            await self.app(scope, body.receive, answer.send)
        except RefusalError as error:
            await answer.respond(error, scope, receive)
        except ClientDisconnect:  # While its body was read.
            await answer.respond(problems.client_left(), scope, receive)
        except Exception:  # noqa: BLE001  # No other place would catch and log it.
            logs.LOGGER.exception("error", extra={"fields": {"request_id": request_id, "path": scope["path"]}})
            await answer.respond(_OUR_FAULT, scope, receive)
        finally:
            body.close()
        seconds = time.perf_counter() - started_s
        route = getattr(scope.get("route"), "path", "(none)")
        self.observe(route, scope["method"], answer.status, seconds)
        logs.log(
            logging.INFO,
            "request",
            request_id=request_id,
            method=scope["method"],
            path=scope["path"],
            status=answer.status,
            seconds=round(seconds, 6),
            bytes=answer.size_bytes,
            client=scope["client"][0] if scope.get("client") else None,
        )

    def _token(self, headers: Headers) -> int | None:
        """The number of the token that a request has; None where it has none of this service's."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip().encode("latin-1", "replace")
        # The token is compared with all tokens in constant time, so that the time of the check reveals nothing.
        matches = [hmac.compare_digest(token, each.encode()) for each in self.settings.tokens]
        return matches.index(True) if kind.lower() == "bearer" and any(matches) else None


def _stranger(headers: Headers) -> RefusalError:
    error = RefusalError(
        401,
        "token",
        "this service needs a token",
        given="an unknown token" if headers.get("authorization") else "none",
        hint="send the header Authorization: Bearer TOKEN",
    )
    error.headers["WWW-Authenticate"] = "Bearer"
    return error


def _too_large(size_bytes: int, settings: Settings) -> RefusalError:
    return RefusalError(
        413,
        "too-large",
        "the body is too large",
        given=f"at least {size_bytes} bytes",
        allowed=f"up to {settings.max_body_bytes} bytes",
        hint="send less at once; the limit is what --max-body-bytes of the service says",
    )


@dataclass
class _Body:
    """A body that is being received, with limits on its bytes and seconds. A large one counts until it is answered."""

    _receive: Receive
    _settings: Settings
    _checks: RequestChecks
    _complete: bool = False
    _deadline_s: float | None = None
    _size_bytes: int = 0
    _counted_bytes: int = 0

    async def receive(self) -> Message:
        if self._complete:
            # From here on the only further message is the disconnection.
            return await self._receive()
        self._deadline_s = self._deadline_s or time.monotonic() + self._settings.body_seconds
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline_s - time.monotonic()))
        except TimeoutError:
            raise RefusalError(
                408,
                "slow",
                "the body did not arrive in time",
                given=f"{self._size_bytes} bytes so far",
                allowed=f"{self._settings.body_seconds:g} s",
                hint="send the body without pauses",
            ) from None
        self._size_bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._size_bytes > self._settings.max_body_bytes:
            raise _too_large(self._size_bytes, self._settings)
        if self._size_bytes > caches.LARGE_BYTES:
            added_bytes = self._size_bytes - self._counted_bytes
            if self._checks.large_bytes + added_bytes > self._settings.max_bodies_bytes:
                raise problems.busy(
                    "too many large bodies are waiting",
                    f"{self._checks.large_bytes} bytes",
                    f"{self._settings.max_bodies_bytes} bytes",
                )
            self._checks.large_bytes += added_bytes
            self._counted_bytes += added_bytes
        return message

    def close(self) -> None:
        """Stop counting the body, because it has been answered."""
        self._checks.large_bytes -= self._counted_bytes


_OUR_FAULT = RefusalError(
    500,
    "internal",
    "the service failed with an internal error",
    hint="the log of the service has the details under this request's id",
)


@dataclass
class _Answer:
    """An answer that is being sent: adds the headers of all answers, and records the status for the log."""

    _send: Send
    _request_id: str
    _policy: str
    status: int = 0
    size_bytes: int = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self._request_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "no-referrer"
            headers["Content-Security-Policy"] = self._policy
        elif message["type"] == "http.response.body":
            self.size_bytes += len(message.get("body", b""))
        await self._send(message)

    async def respond(self, error: RefusalError, scope: Scope, receive: Receive) -> None:
        """Answer with a problem, unless an answer has been started."""
        if not self.status:
            await problems.problem_response(error, self._request_id)(scope, receive, self.send)


def _address(scope: Scope) -> str:
    """The address of a client. Whoever has one address of IPv6 has 2^64, so that their network counts."""
    address = scope["client"][0] if scope.get("client") else ""
    if ":" not in address:
        return address
    with contextlib.suppress(ValueError):  # what a proxy forwards may be any text
        return str(ip_network((address.partition("%")[0], 64), strict=False))
    return address


def _path(scope: Scope) -> str:
    """The path of a request without the prefix that a proxy strips."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(root + "/") else path


def _is_page(path: str) -> bool:
    return path in ("/", "/docs", "/scoreboard") or path.startswith("/static/")
