"""A service that runs: limits, strangers, slow clients, kills, reloads, metrics and the log."""

import concurrent.futures
import contextlib
import json
import re
import signal
import socket
import threading
from http.client import HTTPException

import pytest
from waiting import until

import joulecast
from joulecast.errors import InputError
from joulecast.operations.network import Network

pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
from joulecast.service import Settings
from joulecast.service.app import listen, url_of

RELU = {"kind": "relu", "input_shapes": [[32, 64, 56, 56]]}
QUESTION = {"model": "resnet18", "input_shape": [8, 3, 224, 224], "gpu": "A30"}


def test_strangers_are_refused(narrow):
    for wrong in ("", "Bearer", "Bearer wrong", "Basic a-token-for-the-tests", "bearer " + "x" * 5000, "Bearer \xe9"):
        answer = narrow.ask("/v1/predict", QUESTION, Authorization=wrong)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert narrow.ask("/v1/metrics", Authorization="").status == 401
    for path in ("/v1/health", "/v1/ready", "/", "/static/app.js"):
        assert narrow.ask(path, Authorization="").status == 200
    assert "a-token-for-the-tests" not in narrow.log.read_text()


LLAMA = {"model": "llama3_8b", "prompt_tokens": 9, "output_tokens": 9}
QWEN = {"model": "qwen3_0_6b", "prompt_tokens": 100, "output_tokens": 20}
SIMULATED = {**QWEN, "gpu": "2x L4", "requests": 5.0, "duration_s": 1e6}
GPUS = [
    "L4",
    "L40",
    "L40S",
    "A10",
    "A30",
    "A40",
    "A2",
    "H200",
    "B200",
    "B300",
    "GB200",
    "GB300",
    "RTX3090",
    "RTX4090",
    "RTX5090",
]
GPUS += ["A100 PCIe 40GB", "A100 PCIe 80GB", "H100 SXM", "H100 PCIe", "H100 NVL"]
CHOSEN = {**QWEN, "gpus": GPUS, "batches": [*range(1, 9)], "rate_per_s": 20.0}
TRAINED = {
    "model": "bert_base",
    "input_shape": [32, 128],
    "samples": 1e5,
    "precision": "bf16",
    "counts": [*range(1, 9)],
}
TRAINED |= {"gpus": ["A30", "L4", "T4"], "clocks_mhz": [900.0 + i for i in range(1000)]}


def test_too_much_is_refused(narrow, service):
    many = {"networks": [{"operations": [RELU]}] * 4, "gpu": "A30"}
    assert narrow.ask("/v1/predict_many", {**many, "networks": many["networks"][:3]}).status == 200
    for path, question, allowed in (
        ("predict_many", many, "3"),
        ("predict", {"operations": [RELU] * 41, "gpu": "A30"}, "40"),
        ("predict_operations", {"operations": [RELU] * 41, "gpu": "A30"}, "40"),
        ("extract", {"model": "densenet121", "input_shape": [1, 3, 224, 224]}, "40"),
        ("best", {"model": "alexnet", "input_shape": [1, 3, 224, 224]}, "50"),
        ("predict", b" " * 20_001, "20000"),
        ("best_generation", {**LLAMA, "gpus": ["H100 SXM"]}, "up to 50"),  # 8 clocks x 8 batches
    ):
        answer = narrow.ask(f"/v1/{path}", question)
        assert answer.status == 413, path
        assert allowed in answer.json["allowed"]
    assert answer.json["given"] == "64"
    for path, question in (("simulate_serving", SIMULATED), ("best_generation", CHOSEN), ("best_run", TRAINED)):
        assert service.ask(f"/v1/{path}", question).status == 413, path
    # A trace is a file, and those of the service's machine are nobody's business.
    assert service.ask("/v1/simulate_serving", {**SIMULATED, "requests": "/etc/passwd"}).status == 422


def waiting(running, count):
    """Wait until so many questions are computed; loading predictors counts as one."""
    until(lambda: f"joulecast_waiting_requests {count}.0\n" in running.ask("/v1/metrics").text)


def test_a_damaged_list_of_predictors_is_reported_and_does_not_stop_the_service(tmp_path, started):
    index = tmp_path / "cache" / "zoo" / "index.json"
    index.parent.mkdir(parents=True)
    index.write_text("{")
    running = started("--no-extraction")
    for path, question in (("/v1/ready", None), ("/v1/predict", QUESTION)):
        answer = running.ask(path, question)
        assert (answer.status, "index.json" in answer.json["detail"]) == (503, True)
    assert running.ask("/v1/health").status == 200
    index.unlink()
    assert running.ask("/v1/predict", QUESTION).status == 200
    assert running.ask("/v1/ready").status == 200
    index.write_text("[]")  # Damage is reported again, however soon it comes.
    until(lambda: running.ask("/v1/ready").status != 200)
    assert running.ask("/v1/predict", QUESTION).status == 503


def test_what_takes_too_long_is_refused_and_stopped(started):
    running = started("--max-seconds", "2", "--max-waiting", "1", "--no-extraction")
    waiting(running, 0)
    many = {"networks": [{"model": "densenet121"}] * 3000, "input_shape": [1, 3, 224, 224], "gpu": "A30", "level": 0.9}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(running.ask, "/v1/predict_many", many)  # would take half a minute
        waiting(running, 1)
        busy = running.ask("/v1/predict", QUESTION)
        answer = asked.result()
    assert (busy.status, busy.headers["retry-after"]) == (429, "1")
    assert answer.status == 408
    assert answer.json["allowed"] == "2 s"
    # The work was stopped, so that another question is answered.
    waiting(running, 0)
    assert running.ask("/v1/predict", {"operations": [RELU], "gpu": "A30"}).status == 200


def test_a_client_that_disconnects_is_no_error_of_the_service(service):
    def disconnected():
        counted = r'joulecast_requests_total{method="POST",route="/v1/predict",status="499"} (\d+)'
        return sum(map(int, re.findall(counted, service.ask("/v1/metrics").text)))

    before = disconnected()
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(head + b'{"model"')
    until(lambda: disconnected() == before + 1, otherwise=service.log.read_text)
    assert not [line for line in service.lines() if line["level"] == "error"]


def test_where_it_cannot_listen_is_reported(call):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, _, errors = call("serve", "--port", port)
    assert code == InputError.exit_code
    assert errors.startswith("error: another program listens on this port already")
    assert f"127.0.0.1:{port}" in errors
    assert "--port" in errors
    elsewhere = call("serve", "--host", "203.0.113.7", "--port", "0")  # which is reserved for documentation
    assert (elsewhere[0], "the service cannot listen there" in elsewhere[2]) == (InputError.exit_code, True)


def test_an_answer_does_not_wait_for_an_acknowledgement():
    # asyncio sets TCP_NODELAY on connections of sockets whose protocol is named, and of no others.
    with listen(Settings(port=0)) as listening, socket.create_connection(listening.getsockname()) as client:
        accepted, _ = listening.accept()
        with accepted:
            assert (accepted.proto, client.proto) == (socket.IPPROTO_TCP, socket.IPPROTO_TCP)


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")])  # noqa: S104
def test_the_url_opens_the_page_on_this_machine(host, url):
    try:
        listening = listen(Settings(host=host, port=0))
    except InputError:
        pytest.skip(f"this machine has no {host}")
    with listening:
        assert url_of(Settings(host=host), listening) == f"http://{url}:{listening.getsockname()[1]}/"


def test_a_body_without_a_length_is_limited_too(narrow):
    with socket.create_connection(("127.0.0.1", narrow.port)) as raw:
        head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nAuthorization: {narrow.headers['Authorization']}\r\n"
        raw.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        raw.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n" + b"2715\r\n" + b" " * 10_005 + b"\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 413")


def test_slow_clients_do_not_block_others(narrow):
    head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nAuthorization: {narrow.headers['Authorization']}\r\n"
    slow = [socket.create_connection(("127.0.0.1", narrow.port)) for _ in range(40)]
    for i, each in enumerate(slow):
        # Some say nothing, some half a head, some half a body.
        each.sendall(
            b"" if i % 3 == 0 else head.encode() if i % 3 == 1 else head.encode() + b"Content-Length: 9\r\n\r\n{"
        )
    assert narrow.ask("/v1/predict", {"operations": [RELU], "gpu": "A30"}).status == 200
    for each in slow[2::3]:
        each.settimeout(60)
        assert each.recv(1000).startswith(b"HTTP/1.1 408")
    for each in slow:
        each.close()


def test_too_many_connections_are_told_so(started):
    running = started("--max-connections", "3", "--no-extraction")
    with contextlib.ExitStack() as others:
        for _ in range(3):
            others.enter_context(socket.create_connection(("127.0.0.1", running.port)))
        until(lambda: running.ask("/v1/health").status == 503)
    until(lambda: running.ask("/v1/health").status == 200)


def test_other_pages_may_ask_where_that_is_set_and_the_page_loads_nothing_from_elsewhere(narrow, service):
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    allowed = narrow.ask("/v1/predict", method="OPTIONS", Authorization="", **asked)
    assert allowed.headers["access-control-allow-origin"] == "https://example.org"
    assert "access-control-allow-origin" not in narrow.ask("/v1/health", Origin="https://example.com").headers
    health = service.ask("/v1/health", Origin="https://example.org").headers
    assert "access-control-allow-origin" not in health
    assert health["x-content-type-options"] == "nosniff"
    policy = service.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_counts_and_logs(service):
    service.ask("/v1/health", X_Request_ID="of-this-test")
    service.ask("/v1/health", X_Request_ID='evil"}\u00e9')
    text = service.ask("/v1/metrics").text
    assert 'joulecast_requests_total{method="GET",route="/v1/health",status="200"}' in text
    assert "joulecast_request_seconds_bucket" in text
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0
    line = next(line for line in service.lines() if line.get("request_id") == "of-this-test")
    assert (line["path"], line["status"]) == ("/v1/health", 200)
    assert "evil" not in service.log.read_text()


def test_running_questions_are_answered_before_it_stops(started):
    running = started("--drain-seconds", "300")
    question = {"model": "resnet18", "input_shape": [1, 3, 224, 224], "precision": ["fp32", "fp16", "bf16"]}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(running.ask, "/v1/sweep", question)
        waiting(running, 1)
        running.process.send_signal(signal.SIGTERM)
        assert asked.result().status == 200
    assert running.process.wait(timeout=300) in (0, -signal.SIGTERM)


def test_starts_again_after_it_was_killed_under_load(tmp_path, started):
    running = started()
    stop = threading.Event()

    def load(place: int) -> None:
        for batch in range(1, 1000):
            if stop.is_set():
                return
            # A model without a template is extracted, and written into the cache.
            question = {**QUESTION, "model": "plain_bert_base", "input_shape": [batch, 8 + place]}
            try:
                running.ask("/v1/predict", question)
            except (OSError, HTTPException):
                return

    threads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    folder = tmp_path / "cache" / "networks"
    try:
        until(lambda: len(list(folder.glob("[!.]*.json"))) >= 4)
    finally:
        running.process.kill()
        running.process.wait()
        stop.set()
        for thread in threads:
            thread.join()
    files = list(folder.glob("[!.]*.json"))
    assert len(files) >= 4
    for file in files:
        Network.from_dict(json.loads(file.read_text())["network"])
    again = started()
    assert again.ask("/v1/predict", {**QUESTION, "model": "plain_bert_base", "input_shape": [1, 8]}).status == 200
    assert again.stop() in (0, -signal.SIGTERM)


def test_a_pulled_predictor_answers_from_then_on(small_entry, started):
    running = started()
    question = {"operations": [RELU], "gpu": "A30"}
    before = running.ask("/v1/predict", question)
    generation = running.ask("/v1/version").json["generation"]
    running.pull(small_entry)
    until(lambda: running.ask("/v1/version").json["generation"] != generation)
    after = running.ask("/v1/predict", question, If_None_Match=before.headers["etag"])
    running.stop()
    assert after.status == 200
    relu = joulecast.Operation("relu", [(32, 64, 56, 56)])
    expected = joulecast.predict([(relu, 1)], None, "A30", predictor=str(small_entry))
    assert after.json["energy_j"] == pytest.approx(expected.energy_j, rel=1e-9)
    assert after.json["energy_j"] != before.json["energy_j"]


def test_settings_are_checked(call, tmp_path):
    wrong = {"max_batch": 0, "tokens": ("short",), "root_path": "x/", "log_level": "loud", "max_seconds": 0.0}
    for name, value in {**wrong, "port": 65536}.items():
        with pytest.raises(InputError):
            Settings(**{name: value})
    assert call("serve", "--tokens-file", tmp_path / "none")[0] == 2
    (tmp_path / "tokens").write_text("")
    assert "empty" in call("serve", "--tokens-file", tmp_path / "tokens")[2]
    assert "max_batch" in call("serve", "--max-batch", 0)[2]
