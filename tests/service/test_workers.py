"""Threads that compute for several clients: a client with many questions does not keep others waiting."""

import asyncio
import gc
import threading
import weakref

import pytest

pytest.importorskip("fastapi", reason="the service needs joulecast[service]")
from joulecast.errors import InputError, RefusalError
from joulecast.progress import paced
from joulecast.service.workers import Workers


class Held:
    """Work that lasts until it is released, and the order in which other work was done."""

    def __init__(self):
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.order = []

    def hold(self):
        self.begun.set()
        self.let_go.wait(60)

    def note(self, name):
        return lambda: self.order.append(name)


@pytest.fixture
def held():
    found = Held()
    yield found
    found.let_go.set()


async def settled():
    """All questions are waiting for what they will wait for."""
    for _ in range(9):
        await asyncio.sleep(0)


async def busy(workers, held):
    """A task that occupies the only thread."""
    task = asyncio.ensure_future(workers.run(held.hold, seconds=60, client="first"))
    await asyncio.to_thread(held.begun.wait, 60)
    return task


def asked(workers, call, client, **more):
    return asyncio.ensure_future(workers.run(call, seconds=60, client=client, **more))


async def test_clients_take_turns(held):
    workers = Workers(1, 1, 100)
    tasks = [await busy(workers, held)]
    tasks += [asked(workers, held.note(f"greedy {i}"), "greedy") for i in range(5)]
    tasks += [asked(workers, held.note(f"honest {i}"), "honest") for i in range(2)]
    await settled()
    held.let_go.set()
    await asyncio.gather(*tasks)
    assert workers.waiting == 0
    assert held.order[:4] == ["greedy 0", "honest 0", "greedy 1", "honest 1"]
    assert len(held.order) == 7


async def test_the_longest_queue_gives_way(held):
    workers = Workers(1, 1, 6)
    tasks = [await busy(workers, held)]
    greedy = [asked(workers, held.note(f"greedy {i}"), "greedy") for i in range(5)]
    await settled()
    more = asked(workers, held.note("greedy too many"), "greedy")
    honest = [asked(workers, held.note(f"honest {i}"), "honest") for i in range(2)]
    await settled()
    held.let_go.set()
    results = await asyncio.gather(*tasks, *greedy, more, *honest, return_exceptions=True)
    refused = [isinstance(result, RefusalError) and result.status == 429 for result in results]
    assert refused == [False, False, False, False, True, True, True, False, False]
    assert workers.waiting == 0
    assert held.order.count("honest 0") == held.order.count("honest 1") == 1


async def test_a_client_that_disconnects_leaves_the_queue(held):
    workers = Workers(1, 1, 100)
    running = await busy(workers, held)
    gone = asyncio.Event()
    waits = asked(workers, held.note("nobody waits for it"), "other", left=gone.wait())
    await settled()
    assert workers.waiting == 2
    gone.set()
    with pytest.raises(RefusalError, match="disconnected"):
        await waits
    assert workers.waiting == 1
    held.let_go.set()
    await running
    assert held.order == []


async def test_deadlines_cover_waiting(held):
    workers = Workers(1, 1, 100)
    running = await busy(workers, held)
    with pytest.raises(RefusalError, match="too long"):
        await workers.run(held.note("too late"), seconds=0.01, client="other")
    assert workers.waiting == 1
    held.let_go.set()
    await running
    assert held.order == []


async def test_threads_are_shared_out(held):
    """A client has two of four threads, and another does not wait for it."""
    workers = Workers(2, 4, 100)
    greedy = [asked(workers, held.hold, "greedy") for _ in range(10)]
    await settled()
    assert workers._running == {"greedy": 2}
    assert await asked(workers, lambda: "answered", "honest") == "answered"
    others = [asked(workers, held.hold, f"{n}") for n in range(3)]
    await settled()
    assert workers._running == {"greedy": 2, "0": 1, "1": 1}
    held.let_go.set()
    await asyncio.gather(*greedy, *others)
    assert (workers.waiting, workers._running.total()) == (0, 0)


class Endless:
    """A computation in parts."""

    done = 0

    def __call__(self):
        for _ in paced(range(10**9)):
            self.done += 1


async def test_a_question_stops_when_its_client_leaves():
    workers, gone, endless = Workers(1, 1, 100), asyncio.Event(), Endless()
    task = asked(workers, endless, "greedy", left=gone.wait())
    while not endless.done:
        await asyncio.sleep(0.01)
    gone.set()
    with pytest.raises(RefusalError, match="disconnected"):
        await task
    while workers.waiting:
        await asyncio.sleep(0.01)
    assert workers._running.total() == 0


async def test_a_refusal_keeps_nothing_of_its_question():
    """Exceptions and frames refer to each other, so that the question would stay until all garbage is collected."""
    kept = []

    def refused():
        question = Endless()
        kept.append(weakref.ref(question))
        try:
            raise ValueError(question)
        except ValueError as error:
            raise InputError("no") from error

    gc.disable()
    try:
        with pytest.raises(InputError):
            await Workers(1, 1, 10).run(refused, seconds=60)
        assert kept[0]() is None
    finally:
        gc.enable()
