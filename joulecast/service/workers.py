"""Workers: the threads that compute, how many may wait for one, and for how long."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from ..errors import RefusalError
from .problems import too_long

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Workers:
    """A bounded pool of threads in front of which a bounded number of requests waits.

    Args:
        threads: That compute at once.
        most_waiting: Requests that wait, or are computed, at once.
        most_seconds: That an answer may take, waiting included. A thread cannot be stopped, so one that takes longer
            keeps its place until it is done, and counts as waiting.
    """

    def __init__(self, threads: int, most_waiting: int, most_seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="joulecast")
        self._most_waiting = most_waiting
        self._most_seconds = most_seconds
        self.waiting = 0

    async def run(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Compute in a thread.

        Raises:
            RefusalError: Too many wait already, or it takes too long.
        """
        if self.waiting >= self._most_waiting:
            raise RefusalError(
                429,
                "busy",
                "too many requests are waiting",
                given=self.waiting,
                allowed=self._most_waiting,
                retry_after_s=1,
                hint="ask again in a second",
            )
        self.waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(function, *args, **kwargs))
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._most_seconds)
        except TimeoutError:
            raise too_long(self._most_seconds) from None

    def _done(self, future: asyncio.Future[Result]) -> None:
        self.waiting -= 1
        if not future.cancelled():
            future.exception()  # looked at, or asyncio warns when nobody waited for it

    def close(self) -> None:
        """Drop what waits; what is computed is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
