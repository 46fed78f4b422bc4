"""Threads that compute for several clients: a client with many questions does not keep others waiting."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("fastapi", reason="the service needs joulecast[service]")
from joulecast.errors import RefusalError
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


async def busy(workers, held):
    """A task that occupies the only thread."""
    task = asyncio.ensure_future(workers.run(held.hold, seconds=60, client="first"))
    await asyncio.to_thread(held.begun.wait, 60)
    return task


def asked(workers, call, client, **more):
    return asyncio.ensure_future(workers.run(call, seconds=60, client=client, **more))


async def test_clients_take_turns(held):
    workers = Workers(1, 100)
    tasks = [await busy(workers, held)]
    tasks += [asked(workers, held.note(f"greedy {i}"), "greedy") for i in range(5)]
    tasks += [asked(workers, held.note(f"honest {i}"), "honest") for i in range(2)]
    await asyncio.sleep(0)
    held.let_go.set()
    await asyncio.gather(*tasks)
    assert workers.waiting == 0
    assert held.order[:4] == ["greedy 0", "honest 0", "greedy 1", "honest 1"]
    assert len(held.order) == 7


async def test_long_questions_wait_for_short_ones(held):
    def burn():
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass
        held.order.append("long")

    workers = Workers(1, 100)
    tasks = [await busy(workers, held)]
    tasks += [asked(workers, burn, "greedy") for _ in range(3)]
    tasks += [asked(workers, held.note("short"), "honest") for _ in range(10)]
    await asyncio.sleep(0)
    held.let_go.set()
    await asyncio.gather(*tasks)
    assert held.order == ["long", *["short"] * 10, "long", "long"]


async def test_the_longest_queue_gives_way(held):
    workers = Workers(1, 6)
    tasks = [await busy(workers, held)]
    greedy = [asked(workers, held.note(f"greedy {i}"), "greedy") for i in range(5)]
    await asyncio.sleep(0)
    more = asked(workers, held.note("greedy too many"), "greedy")
    honest = [asked(workers, held.note(f"honest {i}"), "honest") for i in range(2)]
    await asyncio.sleep(0)
    held.let_go.set()
    results = await asyncio.gather(*tasks, *greedy, more, *honest, return_exceptions=True)
    refused = [isinstance(result, RefusalError) and result.status == 429 for result in results]
    assert refused == [False, False, False, False, True, True, True, False, False]
    assert workers.waiting == 0
    assert held.order.count("honest 0") == held.order.count("honest 1") == 1


async def test_a_client_that_disconnects_leaves_the_queue(held):
    workers, stopped = Workers(1, 100), []
    running = await busy(workers, held)
    gone = asyncio.Event()
    waits = asked(workers, held.note("nobody waits for it"), "other", left=gone.wait())
    await asyncio.sleep(0)
    assert workers.waiting == 2
    gone.set()
    with pytest.raises(RefusalError, match="disconnected"):
        await waits
    assert workers.waiting == 1
    held.let_go.set()
    await running
    held.begun.clear()
    held.let_go.clear()
    # A question that is being computed is told to stop.
    computed = asked(workers, held.hold, "other", left=gone.wait(), stop=lambda: stopped.append(1))
    with pytest.raises(RefusalError, match="disconnected"):
        await computed
    assert stopped == [1]
    held.let_go.set()
    assert held.order == []


async def test_deadlines_cover_waiting(held):
    workers = Workers(1, 100)
    running = await busy(workers, held)
    with pytest.raises(RefusalError, match="too long"):
        await workers.run(held.note("too late"), seconds=0.01, client="other")
    assert workers.waiting == 1
    held.let_go.set()
    await running
    assert held.order == []
