"""Sends requests over HTTP, with limits on time and size that no server can exceed.

The timeout of a socket limits each read only. A server that sends single bytes, or one "100 Continue" after the other,
could keep its client waiting forever. So the whole request has a deadline, at which its connection is shut down.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

_CHUNK_BYTES = 1 << 20


class _Deadline:
    """Shuts down the connections of a request when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.is_over = seconds, False
        self._sockets: list[socket.socket] = []

    def watch(self, connected: socket.socket) -> None:
        self._sockets.append(connected)

    @contextmanager
    def running(self) -> Iterator[None]:
        timer = threading.Timer(self.seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self.is_over = True
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections, and registers them with a deadline."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._watched, http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._watched, http.client.HTTPSConnection), req)

    def _watched(self, kind: type[http.client.HTTPConnection], /, *args: Any, **options: Any) -> Any:
        connection = kind(*args, **options)
        connect = connection.connect

        def connect_and_watch() -> None:
            connect()
            self._deadline.watch(connection.sock)

        connection.connect = connect_and_watch  # type: ignore[method-assign]
        return connection


class _WithoutToken(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTP and HTTPS only, and sends the token only to the same host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            raise urllib.error.URLError(f"the redirect to {newurl[:100]} is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and old.netloc != new.netloc:
            request.remove_header("Authorization")
        return request


class Answer(NamedTuple):
    """The answer of a server: the status of HTTP, and the body."""

    status: int
    body: bytes


def fetch(request: urllib.request.Request, *, seconds: float, most_bytes: int, redirects: bool = False) -> Answer:
    """Send a request to an address of http or https, and return the complete answer.

    The deadline holds for connecting, every redirect, the head and the body together. Redirects are followed only if
    asked for, and the token is not sent to other hosts.

    Raises:
        OSError, http.client.HTTPException: There is no complete answer. TimeoutError if it took too long.
        ValueError: The body is too large.
    """
    deadline = _Deadline(seconds)
    opener = urllib.request.OpenerDirector()
    # There are no handlers of files and FTP, so no redirect can lead there.
    handlers = [urllib.request.ProxyHandler(), _Handler(deadline), urllib.request.HTTPDefaultErrorHandler()]
    handlers += [urllib.request.HTTPErrorProcessor(), _WithoutToken()] if redirects else []
    for handler in handlers:
        opener.add_handler(handler)
    try:
        with deadline.running(), _opened(opener, request, seconds) as response:
            answer = Answer(response.status, _body(response, most_bytes))
    except (OSError, http.client.HTTPException) as error:
        # A single read may wait as long as the whole request, so its own timeout can come first by a moment.
        waited = isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
        if not waited and not deadline.is_over:
            raise
        raise TimeoutError(f"no complete answer within {seconds:g} s") from error
    if deadline.is_over:
        # An incomplete head cannot be distinguished from a complete one.
        raise TimeoutError(f"no complete answer within {seconds:g} s")
    return answer


def _opened(opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
    try:
        return opener.open(request, timeout=seconds)
    except urllib.error.HTTPError as error:  # This error is a response, too.
        return error


def _body(response: Any, most_bytes: int) -> bytes:
    found = bytearray()
    while chunk := response.read(min(_CHUNK_BYTES, most_bytes + 1 - len(found))):
        found += chunk
        if len(found) > most_bytes:
            raise ValueError(f"the answer has more than {most_bytes:,} bytes")
    if response.length:
        raise http.client.IncompleteRead(bytes(found), response.length)
    return bytes(found)
