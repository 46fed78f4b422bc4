"""Requests that are small to send and large to answer: they take bounded memory and work, and others go first."""

import asyncio
import concurrent.futures
import gc
import json
import sys
import threading
import weakref
from importlib.util import find_spec
from pathlib import Path

import pytest
from waiting import until

from conftest import benchmark
from joulecast.errors import InputError, UnknownNameError

pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
from joulecast.extraction.isolation import IsolatedExtraction
from joulecast.extraction.job import Job
from joulecast.progress import StoppedError, paced
from joulecast.service import Settings
from joulecast.service import app as application
from joulecast.service.middleware import RequestChecks
from joulecast.service.networks import Networks, TracingNeededError
from joulecast.service.workers import Workers, _Job

TOKEN = "a-token-for-everybody"  # noqa: S105  # which is no secret
RELU = {"kind": "relu", "input_shapes": [[32, 64]]}
MANY = [{"kind": "relu", "input_shapes": [[1, n]]} for n in range(1, 5001)]
CLOCKS = [900 + 0.25 * n for n in range(1000)]


def memory_bytes(service, what="VmHWM"):
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_body_of_faults_takes_little_memory(service):
    """Four megabytes in which everything is a fault took 3.8 GB: each fault was listed."""
    with benchmark("hostile_clients") as hostile:
        bombs = [(path, json.dumps(question).encode()) for path, question in hostile._bombs()]
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")  # resets the highest memory
    before = memory_bytes(service, "VmRSS")
    for path, body in bombs:
        answer = service.ask(f"/v1/{path}", body)
        assert answer.status in (413, 422), (path, answer.text)
        assert len(answer.body) < 2000
    assert memory_bytes(service) < before + 300e6


def test_the_first_faults_are_told(service):
    wrong = {"operations": [{**RELU, "nosuch": 1}, {**RELU, "kind": 3}], "gpu": "A30"}
    assert "there is no field 'operations.0.nosuch'" in service.ask("/v1/predict", wrong).json["title"]
    many = service.ask("/v1/predict", {**{f"f{n}": 0 for n in range(65)}, "gpu": "A30"})
    assert (many.status, many.json["allowed"]) == (422, "an object with up to 64 fields")


def test_a_comparison_is_limited_by_its_work(service):
    """5,000 operations at 1,000 clocks in four precisions are within all other limits, and take minutes."""
    job = {"operations": MANY, "gpus": ["A30"], "clocks_mhz": CLOCKS}
    for path in ("sweep", "best"):
        answer = service.ask(f"/v1/{path}", {**job, "precision": ["fp32", "tf32", "bf16", "fp16"]})
        assert (answer.status, answer.json["given"], answer.json["allowed"]) == (413, "20000000", "up to 5000000")
    small = {**job, "operations": MANY[:2], "clocks_mhz": CLOCKS[:3], "precision": ["fp32", "fp16"]}
    assert len(service.ask("/v1/sweep", small).json["rows"]) == 6


def test_a_tree_has_bounds(service):
    deep = {**RELU, "module_paths": [".".join(["a"] * 1000)[:1000]]}
    wide = [{**MANY[n], "count": 2501, "module_paths": [f"{n}.{m}" for m in range(2501)]} for n in range(2)]
    for operations, status, says in (
        ([deep], 422, "lies too deep"),
        (wide, 413, "too many modules for an energy tree"),
    ):
        answer = service.ask("/v1/predict", {"operations": operations, "gpu": "A30", "tree": True})
        assert (answer.status, says in answer.json["title"]) == (status, True)
        assert service.ask("/v1/predict", {"operations": operations, "gpu": "A30"}).status == 200


async def test_a_refusal_keeps_nothing_of_its_question():
    """Exceptions and frames refer to each other, so that the question would stay until all garbage is collected."""
    kept = []

    def refused():
        question = Parts([], "large")
        kept.append(weakref.ref(question))
        try:
            raise ValueError(question)
        except ValueError as error:
            raise InputError("no") from error

    gc.disable()
    try:
        with pytest.raises(InputError):
            await Workers(1, 10).run(refused, seconds=60)
        assert kept[0]() is None
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux")
async def test_what_was_computed_is_kept_while_others_ask_and_dropped_when_nobody_does(monkeypatch):
    """It was dropped every few seconds of a busy service, which had to prepare all networks anew: 0.3 s of waiting."""
    looks = []
    resident = application.resident_bytes
    monkeypatch.setattr(application, "_TIDY_SECONDS", 0.0)
    monkeypatch.setattr(application, "_TIDY_BYTES", -(10**12))  # as if memory had grown
    monkeypatch.setattr(application, "resident_bytes", lambda: looks.append(0) or resident())
    app = application.create_app()
    finished = app.state.cache.finished
    finished.put(b"key", "answer", 10)
    tidying = asyncio.ensure_future(application._tidy(app))
    while len(looks) < 50:
        assert finished.get(b"key") == "answer"
        await asyncio.sleep(0)
    while len(finished):
        await asyncio.sleep(0)
    tidying.cancel()


class Parts:
    """A long computation in parts, each of which takes a processor for a while."""

    def __init__(self, order, name, parts=40):
        self.order, self.name, self.parts, self.done = order, name, parts, 0

    def __call__(self):
        for _ in paced(range(self.parts)):
            sum(range(300_000))
            self.done += 1
        self.order.append(self.name)


async def test_a_long_question_pauses_for_others():
    """Also where as many long questions as there are threads have begun before."""
    order = []
    workers = Workers(1, 100)
    long = asyncio.ensure_future(workers.run(Parts(order, "long", 60), seconds=600, client="greedy"))
    while not workers._begun:
        await asyncio.sleep(0)
    short = [workers.run(Parts(order, "short", 1), seconds=600, client=f"honest {n}") for n in range(5)]
    await asyncio.gather(*short, long)
    assert (workers.waiting, workers._free, workers._begun.total()) == (0, 1, 0)
    assert order == ["short"] * 5 + ["long"]


@pytest.mark.parametrize("others", [0, 3])
async def test_a_question_stops_when_its_client_leaves(others):
    """While it is computed, and while it pauses for others."""
    order, workers, gone = [], Workers(1, 100), asyncio.Event()
    long = Parts(order, "long", 10**9)
    task = asyncio.ensure_future(workers.run(long, seconds=600, client="greedy", left=gone.wait()))
    short = [
        asyncio.ensure_future(workers.run(Parts(order, "short", 10), seconds=600, client=f"honest {n}"))
        for n in range(others)
    ]
    while not long.done:
        await asyncio.sleep(0.01)
    gone.set()
    await asyncio.gather(task, *short, return_exceptions=True)
    while workers.waiting:
        await asyncio.sleep(0.01)
    assert (workers._free, workers._begun.total()) == (1, 0)
    assert order == ["short"] * others
    assert long.done < 10**9


async def test_few_questions_are_begun_at_a_time():
    """Each that pauses keeps what it has computed in memory."""
    most, workers = 0, Workers(2, 100)
    tasks = [asyncio.ensure_future(workers.run(Parts([], "", 20), seconds=600, client=f"{n}")) for n in range(24)]
    while not all(task.done() for task in tasks):
        most = max(most, workers._begun.total())
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)
    assert 2 < most <= 16


async def test_closing_ends_what_pauses():
    others = set(threading.enumerate())
    workers = Workers(1, 100)
    tasks = [asyncio.ensure_future(workers.run(Parts([], "", 10**9), seconds=600, client=f"{n}")) for n in range(3)]
    while workers._begun.total() < 3:
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    workers.close()
    while set(threading.enumerate()) - others:
        await asyncio.sleep(0.01)


def test_what_pauses_ends_with_the_loop_that_would_wake_it():
    others, loop = set(threading.enumerate()), asyncio.new_event_loop()
    job = _Job(
        "anybody", Parts([], "", 10**9), loop.create_future(), lambda job: job.wait(lambda: None, loop.is_closed)
    )

    def computes():
        with pytest.raises(StoppedError):
            job.compute()

    threading.Thread(target=computes, daemon=True).start()
    until(lambda: job.paused)
    loop.close()
    until(lambda: not set(threading.enumerate()) - others)


def client_of(settings, **headers):
    """The client among whom the service is shared out, for a request with these headers."""
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["state"]["client"])

    async def scene():
        sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "GET", "path": "/v1/predict", "headers": sent, "client": ("192.0.2.1", 9)}
        await RequestChecks(app, settings, lambda *_: None)(scope, None, None)

    asyncio.run(scene())
    return seen[0]


def test_a_token_is_one_client_however_it_is_spelled():
    settings = Settings(tokens=("another-token-entirely", TOKEN))
    spelled = [f"Bearer {TOKEN}", f"bEARER   {TOKEN}", f"BEARER {TOKEN}   ", f"bearer\t{TOKEN}".replace("\t", " ")]
    clients = {client_of(settings, authorization=each, x_forwarded_for="10.0.0.1") for each in spelled}
    assert len(clients) == 1
    assert client_of(settings, authorization="Bearer another-token-entirely") not in clients
    assert TOKEN not in str(clients)


def client_in_log(running):
    running.ask("/v1/version", X_Forwarded_For="203.0.113.7", X_Request_ID="forwarded")
    until(lambda: "forwarded" in running.log.read_text())
    return next(line for line in running.lines() if line.get("request_id") == "forwarded")["client"]


def test_forwarded_headers_count_only_from_configured_proxies(started, narrow):
    assert client_in_log(narrow) == "127.0.0.1"  # although uvicorn's own variable trusts everybody: conftest.py
    running = started("--no-extraction", "--proxy", "127.0.0.0/8")
    assert client_in_log(running) == "203.0.113.7"


needs_torch = pytest.mark.skipif(find_spec("torchvision") is None, reason="needs joulecast[torch]")


@needs_torch
def test_names_that_nobody_has_are_refused_without_tracing():
    """The process that traces is asked once, for all names that there are."""
    networks, tracer = Networks(Settings()), IsolatedExtraction()
    try:
        with pytest.raises(TracingNeededError):
            networks.extract(Job("no_such_model", (1, 8)))
        with pytest.raises(UnknownNameError, match="resnet50"):
            networks.tracing(tracer).extract(Job("resnt50", (1, 8)))
    finally:
        tracer.close()
    for name in ("no_such_model", "timm/no_such_model", "no_such_model.a1_in1k"):
        with pytest.raises(UnknownNameError):
            networks.extract(Job(name, (1, 8)))
    with pytest.raises(TracingNeededError):
        networks.extract(Job("plain_bert_base", (1, 9)))


@needs_torch
def test_models_to_trace_have_a_queue_of_their_own(started):
    running = started("--max-tracing", "1")
    known = {"model": "resnet18", "input_shape": [1, 3, 64, 64], "gpu": "A30"}
    traced = {**known, "model": "plain_bert_base"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(running.ask, "/v1/predict", {**traced, "input_shape": [n, 8]}) for n in range(1, 5)]
        assert running.ask("/v1/predict", known).status == 200
        answers = [each.result() for each in asked]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.status for answer in answers} == {200, 429}
