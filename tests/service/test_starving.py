"""Requests that are small to send and large to answer: they take bounded memory and work, and others go first."""

import asyncio
import concurrent.futures
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from waiting import until

from conftest import benchmark
from joulecast.errors import UnknownNameError

pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
from joulecast.extraction.job import Job
from joulecast.service import Settings
from joulecast.service.middleware import RequestChecks
from joulecast.service.networks import Networks

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
    networks = Networks(Settings())
    try:
        with pytest.raises(UnknownNameError, match="resnet50"):
            networks.extract(Job("resnt50", (1, 8)))
    finally:
        networks.tracer.close()
    networks.tracer = None
    for name in ("no_such_model", "timm/no_such_model", "no_such_model.a1_in1k"):
        with pytest.raises(UnknownNameError):
            networks.extract(Job(name, (1, 8)))


@needs_torch
def test_models_to_trace_keep_no_other_client_waiting(started):
    running = started("--proxy", "127.0.0.1")
    traced = {"model": "plain_bert_base", "gpu": "A30"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(running.ask, "/v1/predict", {**traced, "input_shape": [n, 8]}) for n in range(1, 5)]
        known = {"model": "resnet18", "input_shape": [1, 3, 64, 64], "gpu": "A30"}
        assert running.ask("/v1/predict", known, X_Forwarded_For="203.0.113.7").status == 200
        assert not all(each.done() for each in asked)
        assert {each.result().status for each in asked} == {200}
