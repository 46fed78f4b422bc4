"""A deadline for calls of libraries that limit only each single read of a socket, so a slow server could block them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def within(seconds: float, ask: Callable[[], Result]) -> Result:
    """Call a function with a deadline, and return its result or raise its error.

    The function runs in a thread of its own. After the deadline the thread goes on, but its result is ignored, and it
    does not keep the process from ending.

    Raises:
        TimeoutError: The function took longer.
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
        raise TimeoutError(f"no complete answer within {seconds:g} s") from error
