"""Workers: the threads that compute answers, and the bounded queue of questions in front of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from ..errors import JoulecastError, RefusalError
from ..progress import PACE, StoppedError
from .problems import busy, client_left

Result = TypeVar("Result")


class Workers:
    """A bounded pool of threads, with a queue of questions in front of it. Clients take turns.

    A client waits for its own turn first and then for a thread, so that a short question is answered beside many of
    other clients. If too many questions wait, the client with most of them loses its newest one.

    Args:
        of_one: Questions of one client that are computed at once.
        of_all: Questions of all clients that are computed at once.
        most_waiting: Most questions that wait or are computed.
    """

    def __init__(self, of_one: int, of_all: int, most_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(of_all, thread_name_prefix="joulecast")
        self._of_one, self._most_waiting = of_one, most_waiting
        self._threads = asyncio.Semaphore(of_all)
        # A client without questions is forgotten: only these hold its turns.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._queue: list[tuple[str, asyncio.Task[Any]]] = []  # in the order in which they came
        self._running: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Number of questions that wait or are computed."""
        return len(self._queue) + self._running.total()

    async def run(
        self, call: Callable[[], Result], *, seconds: float, client: str = "", left: Awaitable[object] | None = None
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
        over = asyncio.Event()  # Nobody waits for the answer any more.
        task = asyncio.ensure_future(self._computed(client, call, over))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # or asyncio warns of errors unread
        self._queue.append((client, task))
        if self.waiting > self._most_waiting:
            self._drop_newest(client)
        leaving = None if left is None else asyncio.ensure_future(left)
        try:
            waited_for = [task] if leaving is None else [task, leaving]
            done, _ = await asyncio.wait(waited_for, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.cancelled():
                raise busy("too many requests are waiting", self._most_waiting + 1, self._most_waiting)
            if task in done:
                return task.result()
            if done:
                raise client_left()
            hint = "ask for fewer GPUs, clocks or candidates at once"
            raise RefusalError(408, "too-long", "the answer takes too long", allowed=f"{seconds:g} s", hint=hint)
        finally:
            over.set()
            if leaving is not None:
                leaving.cancel()
            self._leave(client, task)

    async def _computed(self, client: str, call: Callable[[], Result], over: asyncio.Event) -> Result:
        """The answer, when it is the client's turn and a thread is free."""
        turns = self._turns.setdefault(client, asyncio.Semaphore(self._of_one))
        async with turns, self._threads:
            self._queue.remove((client, asyncio.current_task()))  # type: ignore[arg-type]
            self._running[client] += 1
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, _paced, call, over)
            finally:
                self._running -= Counter((client,))  # Clients without any are forgotten.

    def _drop_newest(self, newcomer: str) -> None:
        """Drop the newest question of the client with most in the queue; of several, of the one whose queue grows."""
        counts = Counter(client for client, _ in self._queue)
        greedy = max(counts, key=lambda client: (counts[client], client == newcomer))
        self._leave(*next(each for each in reversed(self._queue) if each[0] == greedy))

    def _leave(self, client: str, task: asyncio.Task[Any]) -> None:
        """Take a question out of the queue. One that is computed stops by itself, and has its thread until then."""
        if (client, task) in self._queue:
            self._queue.remove((client, task))
            task.cancel()

    def close(self) -> None:
        """Drop all waiting questions, and do not wait for those that are being computed."""
        for waiting in [*self._queue]:
            self._leave(*waiting)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _paced(call: Callable[[], Result], over: asyncio.Event) -> Result:
    """Call a function. It stops between two parts of its computation if nobody waits for it any more."""

    def stop_if_over() -> None:
        if over.is_set():
            raise StoppedError

    token = PACE.set(stop_if_over)
    try:
        return call()
    except JoulecastError as error:
        # A refusal is its message. What led to it would keep the question and half its answer in memory, in cycles of
        # exceptions and frames that only a collection of all garbage finds.
        error.__cause__ = error.__context__ = error.__traceback__ = None
        raise
    finally:
        PACE.reset(token)
