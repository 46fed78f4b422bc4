"""Limits on the time of a call, and on the memory of this process."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

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
        raise too_late(seconds) from error


def too_late(seconds: float) -> TimeoutError:
    """The error for a deadline that is over."""
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
