"""Limits on the time of a call, on the memory of this process, and on answers over HTTP, which no server can exceed."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

Result = TypeVar("Result")


def within(seconds: float, ask: Callable[[], Result]) -> Result:
    """Call a function with a deadline, and return its result or raise its error.

    The function runs in a thread of its own. After the deadline the thread goes on, but its result is ignored, and it
    does not keep the process from ending. Raises TimeoutError: the function took longer.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # `future.result` raises it again.
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError as error:
        if future.done():  # The function itself raised TimeoutError.
            raise
        raise _too_late(seconds) from error


def _too_late(seconds: float) -> TimeoutError:
    return TimeoutError(f"no complete answer within {seconds:g} s")


@contextmanager
def limited_memory(more_bytes: int) -> Iterator[None]:
    """A context manager in which allocating more bytes than this, in addition to what there is, raises MemoryError.

    On systems without such a limit (macOS, Windows) it has no effect.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            before, hard = resource.getrlimit(resource.RLIMIT_DATA)
            most = [used_bytes() + more_bytes, *(limit for limit in (before, hard) if limit != resource.RLIM_INFINITY)]
            resource.setrlimit(resource.RLIMIT_DATA, (min(most), hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_DATA, (before, hard))
        yield


def used_bytes() -> int:
    """Bytes of this process that count against such a limit. Raises OSError: the system does not report them."""
    used = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(used[1]) * 1024 if used else 0


_CHUNK_BYTES = 1 << 20


class _WithoutToken(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTP and HTTPS only, and sends the token only to the same host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            fp.close()
            raise urllib.error.URLError(f"the redirect to {newurl[:100]} is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and old.netloc != new.netloc:
            request.remove_header("Authorization")
        return request


def fetch(
    request: urllib.request.Request, *, seconds: float, most_bytes: int, redirects: bool = False
) -> tuple[int, bytes]:
    """Send a request to an address of http or https, and return the status and the body of the complete answer.

    The deadline holds for connecting, every redirect, the head and the body together. The timeout of a socket limits
    each read only: a server that sends single bytes, or one "100 Continue" after the other, could keep its client
    waiting forever. Redirects are followed only if asked for, and the token is not sent to other hosts.

    Raises:
        OSError, http.client.HTTPException: There is no complete answer. TimeoutError if it took too long.
        ValueError: The body is too large.
    """
    opener = urllib.request.OpenerDirector()
    # There are no handlers of files and FTP, so no redirect can lead there.
    handlers = [urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler()]
    handlers += [urllib.request.HTTPDefaultErrorHandler()]
    handlers += [urllib.request.HTTPErrorProcessor(), _WithoutToken()] if redirects else []
    for handler in handlers:
        opener.add_handler(handler)
    begun_s = time.monotonic()

    def ask() -> tuple[int, bytes]:
        try:
            response = opener.open(request, timeout=seconds + 1)  # a single read ends soon after the deadline
        except urllib.error.HTTPError as error:  # This error is a response, too.
            response = error
        with response:
            return response.status, _body(response, most_bytes, begun_s, seconds)

    return within(seconds, ask)


def _body(response: Any, most_bytes: int, begun_s: float, seconds: float) -> bytes:
    body = bytearray()
    while chunk := response.read1(min(_CHUNK_BYTES, most_bytes + 1 - len(body))):
        body += chunk
        if len(body) > most_bytes:
            raise ValueError(f"the answer has more than {most_bytes:,} bytes")
        if time.monotonic() > begun_s + seconds:  # Nobody waits any more, or is about to stop.
            raise _too_late(seconds)
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)
