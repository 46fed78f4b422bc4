"""Workers: the threads that compute answers, and the bounded queues of questions in front of them."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..errors import JoulecastError
from ..progress import PACE, StoppedError
from .problems import busy, client_left, too_long

Result = TypeVar("Result")


@dataclass(eq=False)
class _Job:
    """A question that waits for a thread, or is computed."""

    client: str
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    running: bool = False

    def compute(self) -> Any:
        """The answer. It stops between two parts of the computation if nobody waits for it any more."""
        token = PACE.set(self._stop_if_done)
        try:
            return self.call()
        except JoulecastError as error:
            # A refusal is its message. What led to it would keep the question and half its answer in memory, in cycles
            # of exceptions and frames that only a collection of all garbage finds.
            error.__cause__ = error.__context__ = error.__traceback__ = None
            raise
        finally:
            PACE.reset(token)

    def _stop_if_done(self) -> None:
        if self.answer.done():
            raise StoppedError


class Workers:
    """A bounded pool of threads, with a queue of questions for each client. Clients take turns.

    The threads share the processors evenly, so that a short question is answered beside long ones of other clients. If
    too many questions wait, the client with the longest queue loses its newest one.

    Args:
        of_one: Questions of one client that are computed at once.
        of_all: Questions of all clients that are computed at once.
        most_waiting: Most questions that wait or are computed.
    """

    def __init__(self, of_one: int, of_all: int, most_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(of_all, thread_name_prefix="joulecast")
        self._of_one, self._of_all, self._most_waiting = of_one, of_all, most_waiting
        self._running: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()
        self.waiting = 0

    async def run(
        self,
        call: Callable[[], Result],
        *,
        seconds: float,
        client: str = "",
        left: Awaitable[object] | None = None,
    ) -> Result:
        """Compute in a thread.

        Args:
            call: Function that computes the answer.
            seconds: Longest time until the answer, including the time that it waits. A question that takes longer stops
                between two parts of its computation, and counts until then.
            client: Client that sent the question.
            left: Task that is done when the client has disconnected.

        Raises:
            RefusalError: Too many questions wait already, the answer takes too long, or the client has disconnected.
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
            raise client_left() if done else too_long(seconds)
        finally:
            if leaving is not None:
                leaving.cancel()
            self._abandon(job)

    def _enqueue(self, job: _Job) -> None:
        mine = self._queues.setdefault(job.client, deque())
        mine.append(job)
        self.waiting += 1
        if self.waiting <= self._most_waiting:
            return
        longest = max(self._queues.values(), key=len)
        # Of two queues of the same length, the one that grows.
        dropped = mine[-1] if len(mine) == len(longest) else longest[-1]
        dropped.answer.set_exception(busy("too many requests are waiting", self.waiting, self._most_waiting))
        self._remove(dropped)

    def _remove(self, job: _Job) -> None:
        """Take a question out of its queue."""
        self._queues[job.client].remove(job)
        if not self._queues[job.client]:
            del self._queues[job.client]
        self.waiting -= 1

    def _start(self) -> None:
        """Start questions on free threads, those of clients that have waited longest for a turn first."""
        while self._running.total() < self._of_all:
            client = next((each for each in self._queues if self._running[each] < self._of_one), None)
            if client is None:
                return
            queue = self._queues.pop(client)
            job = queue.popleft()
            if queue:
                self._queues[client] = queue  # as the last
            job.running = True
            self._running[client] += 1
            future = asyncio.get_running_loop().run_in_executor(self._pool, job.compute)
            future.add_done_callback(partial(self._done, job))

    def _done(self, job: _Job, future: asyncio.Future[Any]) -> None:
        self._running -= Counter((job.client,))  # Clients without any are forgotten.
        self.waiting -= 1
        if future.cancelled():
            job.answer.cancel()
            return
        if (error := future.exception()) is None and not job.answer.done():
            job.answer.set_result(future.result())
        elif error is not None and not job.answer.done():
            job.answer.set_exception(error)
        self._start()

    def _abandon(self, job: _Job) -> None:
        """Drop a question whose client has gone."""
        if job.answer.done():
            if not job.answer.cancelled():
                # Without this, asyncio warns that the exception was never retrieved.
                job.answer.exception()
            return
        job.answer.cancel()
        if not job.running:
            self._remove(job)

    def close(self) -> None:
        """Drop all waiting questions, and do not wait for those that are being computed."""
        for job in [job for queue in self._queues.values() for job in queue]:
            job.answer.cancel()
            self._remove(job)
        self._pool.shutdown(wait=False, cancel_futures=True)
