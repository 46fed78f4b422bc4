"""Workers: the threads that compute answers, and the bounded queues of questions in front of them.

Long questions pause for others: between parts of a computation (`progress.PACE`), a question that has had its slice of
time waits until its client's turn comes again, and stops if its client has gone or its time is over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..errors import JoulecastError, RefusalError
from ..progress import PACE, StoppedError
from .problems import client_left, too_long

Result = TypeVar("Result")

# A question counts for at least this time as soon as it begins, so that clients with short questions take turns.
_LEAST_S = 1e-3
# Time of a processor after which a question pauses, where its library allows it and others wait.
_SLICE_S = 0.03
# Seconds after which a question that pauses looks whether the service has ended.
_LOOK_S = 1.0
# However long a part of a question took, its client is at most this far behind the client whose turn it is.
_MOST_DEBT_S = 1.0
# Questions that may have begun and not ended; each may take a hundred megabytes. Beyond that none begins, and a client
# begins no more than are computed at once.
_MOST_BEGUN = 16
# If there are more, those that have used no more than the client whose turn it is are forgotten.
_MOST_CLIENTS = 5_000


@dataclass(eq=False)
class _Job:
    """A question that waits for a thread, is computed, or pauses for others.

    Args:
        client: Client that sent the question.
        call: Function that computes the answer.
        answer: Future that receives the answer.
        may_pause: Function that is called in the thread between parts of the computation.
        running: Whether a thread computes it now.
        paused: Event for which its thread waits where it has begun and pauses.
        cpu_s: Time of a processor that it has taken and that its client was not charged for.
    """

    client: str
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    may_pause: Callable[[_Job], None]
    running: bool = False
    paused: threading.Event | None = None
    cpu_s: float = 0.0
    _since_s: float = 0.0

    def compute(self) -> Any:
        """The answer; see `pace` for where this stops or pauses."""
        self._since_s = time.thread_time()
        token = PACE.set(self.pace)
        try:
            return self.call()
        except JoulecastError as error:
            # A refusal is its message. What led to it would keep the question and half its answer in memory, in cycles
            # of exceptions and frames that only a collection of all garbage finds.
            error.__cause__ = error.__context__ = error.__traceback__ = None
            raise
        finally:
            PACE.reset(token)
            self.cpu_s = time.thread_time() - self._since_s

    def pace(self) -> None:
        """Stop if nobody waits for the answer any more, and pause if others wait and this has taken long."""
        if self.answer.done():
            raise StoppedError
        self.cpu_s = time.thread_time() - self._since_s
        if self.cpu_s > _SLICE_S:
            self.may_pause(self)
            if self.answer.done():
                raise StoppedError

    def wait(self, tell: Callable[[], object], closed: Callable[[], bool]) -> None:
        """Say by `tell` that this pauses, and wait for the next turn.

        Raises StoppedError: The loop that gives turns is `closed`.
        """
        self.paused = threading.Event()
        tell()
        while not self.paused.wait(_LOOK_S):
            if closed():
                raise StoppedError
        self.paused = None
        self._since_s, self.cpu_s = time.thread_time(), 0.0


class Workers:
    """A bounded pool of threads, with a queue of questions for each client.

    The next question is that of the client that has used the processors least, and where too many questions wait, the
    client with the longest queue loses its newest one. So neither long nor many questions keep others out.

    Args:
        threads: Number of questions that are computed at once. Each that pauses has a thread besides.
        most_waiting: Most questions that wait or are computed.
    """

    def __init__(self, threads: int, most_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads + _MOST_BEGUN, thread_name_prefix="joulecast")
        self._free = threads
        self._most_of_one = threads
        self._begun: Counter[str] = Counter()
        self._most_waiting = most_waiting
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()
        # Seconds that each client has used. A client that comes back starts with no less than the client whose turn it
        # is, because time that was not used before is not saved up.
        self._used_s: dict[str, float] = {}
        self._turn_s = 0.0
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
            call: Function that computes the answer.
            seconds: Longest time until the answer, including the time that it waits. A question that takes longer stops
                between two parts of its computation, and counts until then.
            client: Client that sent the question.
            left: Task that is done when the client has disconnected.
            stop: Function that is called if the answer is no longer needed while it is computed.

        Raises:
            RefusalError: Too many questions wait already, the answer takes too long, or the client has disconnected.
        """
        loop = asyncio.get_running_loop()

        def may_pause(job: _Job) -> None:
            if self._queues:  # read by another thread: at worst, it pauses in vain or one part later
                job.wait(lambda: loop.call_soon_threadsafe(self._pause, job), loop.is_closed)

        job = _Job(client, call, loop.create_future(), may_pause)
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
            self._abandon(job, stop)

    def _enqueue(self, job: _Job) -> None:
        mine = self._queue(job.client)
        mine.append(job)
        self.waiting += 1
        if self.waiting <= self._most_waiting:
            return
        longest = max(self._queues.values(), key=len)
        # Of two queues of the same length, the one that grows.
        dropped = mine[-1] if len(mine) == len(longest) else longest[-1]
        dropped.answer.set_exception(self._busy())
        self._remove(dropped)

    def _queue(self, client: str) -> deque[_Job]:
        if client not in self._queues:
            self._used_s[client] = max(self._used_s.get(client, 0.0), self._turn_s)
        return self._queues.setdefault(client, deque())

    def _remove(self, job: _Job) -> None:
        """Take a question out of its queue. If it has begun, its thread goes on at once, and ends it."""
        queue = self._queues[job.client]
        queue.remove(job)
        if not queue:
            del self._queues[job.client]
        if job.paused is None:
            self.waiting -= 1
        else:
            self._go_on(job)

    def _start(self) -> None:
        """Start questions on free threads, those of the clients first that have used least."""
        while self._free > 0:
            may_begin = self._begun.total() < _MOST_BEGUN
            ready = [
                client
                for client, queue in self._queues.items()
                if queue[0].paused or (may_begin and self._begun[client] < self._most_of_one)
            ]
            if not ready:
                return
            client = min(ready, key=self._used_s.__getitem__)
            self._turn_s = max(self._turn_s, self._used_s[client])
            self._used_s[client] += _LEAST_S
            queue = self._queues[client]
            job = queue.popleft()
            if queue:
                self._queues.move_to_end(client)
            else:
                del self._queues[client]
            self._go_on(job)

    def _go_on(self, job: _Job) -> None:
        """Begin a question, or go on with one that has paused."""
        self._free -= 1
        job.running = True
        if job.paused is not None:
            job.paused.set()
            return
        self._begun[job.client] += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, job.compute)
        future.add_done_callback(partial(self._done, job))

    def _pause(self, job: _Job) -> None:
        """Let others go first."""
        self._charge(job)
        if job.answer.done():  # Its client left at this moment.
            self._go_on(job)
        else:
            # What has begun goes on before the client's other questions, so that few are begun at a time.
            self._queue(job.client).appendleft(job)
        self._start()

    def _charge(self, job: _Job) -> None:
        """Take a question from its thread, and count what it used of the processors."""
        self._free += 1
        job.running = False
        used_s = self._used_s.get(job.client, self._turn_s)  # The client may have been forgotten meanwhile.
        used_s += max(0.0, job.cpu_s - _LEAST_S)
        self._used_s[job.client] = min(used_s, self._turn_s + _MOST_DEBT_S)
        if len(self._used_s) > _MOST_CLIENTS:
            waiting = {client: self._used_s[client] for client in self._queues}
            self._used_s = {client: s for client, s in self._used_s.items() if s > self._turn_s} | waiting

    def _done(self, job: _Job, future: asyncio.Future[Any]) -> None:
        self._charge(job)
        self._begun -= Counter((job.client,))  # Clients without any are forgotten.
        self.waiting -= 1
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
        """Drop a question whose client has gone."""
        if job.answer.done():
            if not job.answer.cancelled():
                # Without this, asyncio warns that the exception was never retrieved.
                job.answer.exception()
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
            hint="try again in a second",
        )

    def close(self) -> None:
        """Drop all waiting questions, and do not wait for those that are being computed."""
        for job in [job for queue in self._queues.values() for job in queue]:
            job.answer.cancel()
            self._remove(job)
        self._pool.shutdown(wait=False, cancel_futures=True)
