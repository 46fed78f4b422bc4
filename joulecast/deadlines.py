"""A deadline for other libraries, which limit each read of a socket: a server that drips keeps within that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def within(seconds: float, ask: Callable[[], Result]) -> Result:
    """What a function returns, or raises, unless that takes too long.

    The function runs in a thread of its own. After the deadline nobody waits for that thread, and it does not keep the
    process from ending.

    Args:
        seconds: For all that it does.
        ask: The function.

    Raises:
        TimeoutError: It takes longer.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # raised where the result is waited for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError as error:
        if future.done():  # it raised this itself
            raise
        raise TimeoutError(f"no whole answer within {seconds:g} s") from error
