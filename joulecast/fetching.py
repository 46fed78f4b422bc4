"""Asking a server over HTTP, within limits on time and size that hold whatever it does.

The timeout of a socket is one for each read: a server that sends a byte now and then, or one "100 Continue" after the
other, would keep its client for ever. So a request has one deadline, at which its connection is shut down.
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
    """Shuts down what was connected once the time is over."""

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


class _Connection(http.client.HTTPConnection):
    def __init__(self, *args: Any, deadline: _Deadline, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


class _SecureConnection(http.client.HTTPSConnection):
    def __init__(self, *args: Any, deadline: _Deadline, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections that a deadline watches."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, deadline=self._deadline), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_SecureConnection, deadline=self._deadline), req)


class _WithoutToken(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTP and HTTPS only, and takes a token along to the same host only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            raise urllib.error.URLError(f"a redirect to {newurl[:100]}, which is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and old.netloc != new.netloc:
            request.remove_header("Authorization")
        return request


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes


def fetch(request: urllib.request.Request, *, seconds: float, most_bytes: int, redirects: bool = False) -> Answer:
    """Ask a server.

    Args:
        request: Whose scheme is http or https; no other is spoken.
        seconds: For all of it: connecting, every redirect, the head and the body.
        most_bytes: Most bytes in the body of the answer.
        redirects: Whether redirects are followed, without the token where they lead to another host.

    Raises:
        OSError, http.client.HTTPException: There is no whole answer; TimeoutError where it takes too long.
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
        if not deadline.is_over:
            raise
        raise TimeoutError(f"no whole answer within {seconds:g} s") from error
    if deadline.is_over:
        # A head that is cut off looks like one that is whole.
        raise TimeoutError(f"no whole answer within {seconds:g} s")
    return answer


def _opened(opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
    try:
        return opener.open(request, timeout=seconds)
    except urllib.error.HTTPError as error:  # which is a response as well
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
