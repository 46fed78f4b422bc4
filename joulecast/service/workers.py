"""Workers: the threads that compute, how many questions may wait for one, in which order, and for how long."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..errors import RefusalError
from .problems import too_long

Result = TypeVar("Result")


@dataclass(eq=False)
class _Job:
    """A question that waits for a thread, or has one.

    Args:
        client: Who asks.
        call: What to compute.
        answer: Future that the answer is put into.
        running: Whether a thread computes it.
    """

    client: str
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    running: bool = False


class Workers:
    """A bounded pool of threads in front of which a bounded number of questions waits, each client's in its own queue.

    The clients take turns. Where too many questions wait, the client with the longest queue loses its newest one, so
    that whoever asks much keeps nobody else out.

    Args:
        threads: Number of threads, which is the number of questions that are computed at once.
        most_waiting: Questions that wait, or are computed, at once.
    """

    def __init__(self, threads: int, most_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="joulecast")
        self._free = threads
        self._most_waiting = most_waiting
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()
        self.waiting = 0

    async def run(
        self,
        call: Callable[[], Result],
        *,
        seconds: float,
        client: str = "",
        left: Awaitable[object] | None = None,
        stop: Callable[[], object] | None = None,
    ) -> Result:
        """Compute in a thread.

        Args:
            call: What to compute.
            seconds: Seconds that the answer may take, waiting included. A thread cannot be stopped, so one that takes
                longer keeps its place until it is done, and counts as waiting.
            client: Who asks.
            left: Is done when nobody waits for the answer any more.
            stop: Called where the answer is not needed any more while it is computed.

        Raises:
            RefusalError: Too many wait already, it takes too long, or the client has left.
        """
        job = _Job(client, call, asyncio.get_running_loop().create_future())
        self._enqueue(job)
        self._start()
        leaving = None if left is None else asyncio.ensure_future(left)
        waited_for = {job.answer} if leaving is None else {job.answer, leaving}
        try:
            done, _ = await asyncio.wait(waited_for, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if job.answer in done:
                result: Result = job.answer.result()
                return result
            raise _left() if done else too_long(seconds)
        finally:
            if leaving is not None:
                leaving.cancel()
            self._abandon(job, stop)

    def _enqueue(self, job: _Job) -> None:
        mine = self._queues.setdefault(job.client, deque())
        mine.append(job)
        self.waiting += 1
        if self.waiting <= self._most_waiting:
            return
        longest = max(self._queues.values(), key=len)
        # (of two that are equally long, the one that grows)
        dropped = mine[-1] if len(mine) == len(longest) else longest[-1]
        dropped.answer.set_exception(self._busy())
        self._remove(dropped)

    def _remove(self, job: _Job) -> None:
        queue = self._queues[job.client]
        queue.remove(job)
        self.waiting -= 1
        if not queue:
            del self._queues[job.client]

    def _start(self) -> None:
        """Give free threads to the clients whose turn it is."""
        while self._free and self._queues:
            client, queue = next(iter(self._queues.items()))
            job = queue.popleft()
            if queue:
                self._queues.move_to_end(client)
            else:
                del self._queues[client]
            self._free -= 1
            job.running = True
            future = asyncio.get_running_loop().run_in_executor(self._pool, job.call)
            future.add_done_callback(partial(self._done, job))

    def _done(self, job: _Job, future: asyncio.Future[Any]) -> None:
        self._free += 1
        self.waiting -= 1
        job.running = False
        error = None if future.cancelled() else future.exception()
        if job.answer.done() or future.cancelled():
            job.answer.cancel()
        elif error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(future.result())
        if not future.cancelled():
            self._start()

    def _abandon(self, job: _Job, stop: Callable[[], object] | None) -> None:
        """Nobody waits for this answer any more."""
        if job.answer.done():
            if not job.answer.cancelled():
                job.answer.exception()  # looked at, or asyncio warns where a job was refused before anybody waited
            return
        job.answer.cancel()
        if not job.running:
            self._remove(job)
        elif stop is not None:
            stop()

    def _busy(self) -> RefusalError:
        return RefusalError(
            429,
            "busy",
            "too many requests are waiting",
            given=self.waiting,
            allowed=self._most_waiting,
            retry_after_s=1,
            hint="ask again in a second",
        )

    def close(self) -> None:
        """Drop what waits; what is computed is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _left() -> RefusalError:
    return RefusalError(499, "left", "the client has left before its answer was there")
