"""Fuzzes the service: sends thousands of invalid requests, and checks that each is answered with a proper status.

    python benchmarks/fuzz_service.py                                   # 3,000 requests
    python benchmarks/fuzz_service.py --count 10000 --seed 1

Starts `joulecast serve` on this machine. Each case is a valid request with changes in the values of its JSON, in its
path and query, in its headers, or in any of its bytes. Correct outcomes are an answer, a refusal (4xx), or a closed
connection if the request was not HTTP. Faults are a status of 500, no answer within 20 s, and a service that ends or
grows by more than 1 GB. If there are any, the script ends with exit code 1.
"""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from fuzz_damage import ODD, damaged, edited
from fuzz_judge import GROWTH_BYTES, SECONDS, Tally, Verdict, fuzz, main
from service import resident_mb, service

RELU = {"kind": "relu", "input_shapes": [[32, 64, 56, 56]], "count": 3, "module_paths": ["a.relu"]}
LINEAR = {"kind": "linear", "input_shapes": [[8, 64]], "attributes": {"out_features": 32, "bias": True}}
CONV = {"kind": "conv2d", "input_shapes": [[2, 3, 32, 32]], "attributes": {"out_channels": 8, "kernel_size": [3, 3]}}
NAMED = {"model": "resnet18", "input_shape": [2, 3, 64, 64]}
LISTED = {"operations": [RELU, LINEAR, {**CONV, "mode": "training"}], "name": "mine", "mode": "inference"}
LISTED_ONE = {"operations": [LINEAR], "name": "one"}
TEXT = {"model": "llama3_8b", "prompt_tokens": 100, "output_tokens": 50, "engine": "vllm"}
DROPPED = {"name": "aten.x", "count": 2, "module_paths": ["a"], "reason": "unknown", "work": None}
QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("predict", {**NAMED, "gpu": "A30", "clock_mhz": 900.0, "power_limit_w": 150.0, "precision": "fp16"}),
    ("predict", {**NAMED, "gpu": "H100 SXM", "execution": "graph", "host": 0.5, "composition": "sum", "strict": False}),
    ("predict", {**LISTED, "operations": [RELU, LINEAR], "dropped": [DROPPED], "assumptions": ["x"], "gpu": "T4"}),
    ("predict", {"model": "gpt2", "input_shape": [2, 1], "cache_length": 64, "gpu": "L4", "predictor": None}),
    ("sweep", {**NAMED, "gpus": ["A30", "T4"], "clocks_mhz": [900.0], "batch_sizes": [1, 4], "precision": ["fp32"]}),
    ("best", {**NAMED, "gpus": ["A30"], "objective": "cost", "price_per_hour": {"A30": 0.5}, "max_time_s": 1.0}),
    (
        "best",
        {**NAMED, "gpus": ["T4"], "objective": "carbon", "carbon": "DE", "price_per_kwh": 0.3, "max_power_w": 70.0},
    ),
    ("extract", {**NAMED, "mode": "training", "optimizer": "adam"}),
    ("predict_operations", {"operations": [RELU, CONV], "gpu": "A30", "clock_mhz": 1200.0}),
    ("explain", {"operation": LINEAR, "gpu": "A30"}),
    ("predict_many", {"networks": [{"model": "resnet18"}, LISTED_ONE], "input_shape": [2, 3, 64, 64], "gpu": "A30"}),
    ("predict_generation", {**TEXT, "gpu": "2x H100 SXM", "batch": 8, "tensor_parallel": 2, "precision": "fp8"}),
    (
        "best_generation",
        {**TEXT, "gpus": ["L40S"], "counts": [1, 2], "batches": [1, 8], "max_time_per_output_token_s": 1.0},
    ),
    ("predict_image", {"model": "sd3_5_medium", "gpu": "H100 SXM", "steps": 2, "height": 512, "width": 512}),
    ("predict_image", {"model": "wan_2_1_1_3b", "gpu": "H100 SXM", "frames": 5, "host": 0.5, "execution": "graph"}),
    ("best_run", {"model": "bert_base", "input_shape": [32, 128], "samples": 1000, "gpus": ["A30"], "counts": [1, 8]}),
    ("simulate_serving", {**TEXT, "gpu": "L40S", "requests": 1, "duration_s": 5}),
)
PATHS = (
    *(
        "gpus",
        "gpus/A30",
        "models?search=res",
        "zoo",
        "zoo/a30/forest-inference",
        "health",
        "ready",
        "version",
        "metrics",
        "execution",
    ),
    *("openapi.json", "nothing"),
)


def request(method: str, path: str, body: object = b"", headers: dict[str, str] | None = None) -> bytes:
    """The bytes of a request. A body that is not bytes is sent as JSON."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"{method} /v1/{path} HTTP/1.1", *(f"{k}: {v}" for k, v in {**sent, **(headers or {})}.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


# Kinds of cases: functions from a random number generator to a request.


def json_values(rng: random.Random) -> bytes:
    """A request in which one or several values are replaced by wrong ones."""
    path, question = rng.choice(QUESTIONS)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        question = edited(question, rng)
    accept = rng.choice(["*/*", "text/csv", "application/vnd.joulecast.v1+json", "x" * 500])
    return request("POST", path, json.dumps(question).encode(), {"Accept": accept})


def json_bytes(rng: random.Random) -> bytes:
    """A request whose body is damaged text."""
    path, question = rng.choice(QUESTIONS)
    return request("POST", path, damaged(json.dumps(question).encode(), rng))


def paths(rng: random.Random) -> bytes:
    """A request with any method and a damaged path and query."""
    path = rng.choice(PATHS)
    if rng.random() < 0.5:
        place = rng.randrange(len(path) + 1)
        path = path[:place] + quote(str(rng.choice(ODD)))[:2000] + path[place:]
    else:
        path = quote(damaged(path.encode(), rng), safe="/?=&,%")
    return request(rng.choice(["GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "X" * 300]), path)


def headers(rng: random.Random) -> bytes:
    """A request with wrong headers."""
    path, question = rng.choice(QUESTIONS)
    names = ["Content-Type", "Content-Encoding", "Accept", "If-None-Match", "Authorization", "X-Request-ID", "Expect"]
    names += ["Range", "Cookie", "Transfer-Encoding", "X-Forwarded-For", "Upgrade", "Accept-Encoding", "Host", "Origin"]
    values = [
        "",
        "x",
        "gzip",
        "chunked",
        "*",
        '"' * 99,
        "bytes=0-1",
        "100-continue",
        "9" * 5000,
        "\xff\xfe",
        "websocket",
    ]
    odd = {rng.choice(names): rng.choice(values) for _ in range(rng.randint(1, 4))}
    return request("POST", path, json.dumps(question).encode(), odd)


def whole(rng: random.Random) -> bytes:
    """A request with damage anywhere, including its header."""
    path, question = rng.choice(QUESTIONS)
    return damaged(request("POST", path, json.dumps(question).encode()), rng)


def validation_bombs(rng: random.Random) -> bytes:
    """A body of up to 3.9 MB in which a list or an object, anywhere, is filled with faults."""
    path, question = rng.choice(QUESTIONS)
    question = json.loads(json.dumps(question))
    places = list(_places(question))
    node, key = rng.choice(places)
    fault = rng.choice(
        [0, None, {}, [], "", {"a": 0}, [[]], [0] * 9, {"kind": 0}, {"kind": "relu", "input_shapes": [[0]]}]
    )
    number = rng.choice([1_000, 15_000, 60_000, 3_800_000]) // (len(json.dumps(fault)) + 2)
    node[key] = [fault] * number if rng.random() < 0.7 else {f"{n:x}": fault for n in range(number // 4)}
    return request("POST", path, json.dumps(question, separators=(",", ":")).encode())


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All places of a JSON value, as the object or list that holds it and its key there."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def work_bombs(rng: random.Random) -> bytes:
    """A valid question that is as much work as limits allow, or more."""
    operations = [
        {**rng.choice([RELU, LINEAR]), "input_shapes": [[1 + n, rng.randint(1, 500)]], "count": 1, "module_paths": []}
        for n in range(rng.choice([10, 300, 5000]))
    ]
    clocks = [900 + 0.2 * n for n in range(rng.choice([1, 30, 1000]))]
    precisions = rng.sample(["fp32", "tf32", "bf16", "fp16"], rng.randint(1, 4))
    deep = {**RELU, "count": 1, "module_paths": [".".join(["a"] * rng.choice([5, 49, 499]))[: rng.choice([50, 999])]]}
    paths = [f"{n}.{m}" for n in range(rng.choice([1, 30])) for m in range(300)]
    return request(
        "POST",
        *rng.choice(
            [
                (
                    "sweep",
                    {"operations": operations, "clocks_mhz": clocks, "gpus": ["A30", "T4"], "precision": precisions},
                ),
                ("best", {"operations": operations, "precision": precisions}),
                ("best", {**NAMED, "batch_sizes": list(range(1, rng.choice([3, 100]))), "precision": precisions}),
                ("predict", {"operations": operations, "gpu": "A30", "tree": True}),
                ("predict", {"operations": [deep], "gpu": "A30", "tree": True}),
                (
                    "predict",
                    {"operations": [{**RELU, "count": len(paths), "module_paths": paths}], "gpu": "T4", "tree": True},
                ),
                ("predict_many", {"networks": [{"operations": operations[:300]}] * rng.choice([2, 50]), "gpu": "A30"}),
                (
                    "best_generation",
                    {**TEXT, "counts": [1, 2, 4, 8], "batches": list(range(1, 40)), "gpus": ["H100 SXM"]},
                ),
            ]
        ),
    )


def shares(rng: random.Random) -> bytes:
    """A request that pretends to come from elsewhere, or spells a token in its own way."""
    path, question = rng.choice(QUESTIONS)
    spelled = "".join(rng.choice([letter.upper(), letter]) for letter in "bearer")
    address = ".".join(str(rng.randint(0, 300)) for _ in range(4))
    odd = {
        "Authorization": f"{spelled}{rng.choice([' ', '   ', chr(9), ''])}{rng.choice(['token', 'x' * 3000, ''])}",
        "X-Forwarded-For": rng.choice(
            [address, f"{address}, {address}", "::1%eth0", "unknown", "x" * 3000, "a,b," * 500]
        ),
        "X-Forwarded-Proto": rng.choice(["https", "ws", "x"]),
        "Forwarded": f"for={address}",
    }
    return request("POST", path, json.dumps(question).encode(), dict(rng.sample(list(odd.items()), 2)))


_MAKERS = (json_values, json_bytes, paths, headers, whole, validation_bombs, work_bombs, shares)
KINDS = {f"service: {make.__name__}": make for make in _MAKERS}


def answered(port: int, sent: bytes) -> bytes:
    """The bytes of the answer; those received so far if the service closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        received = b""
        try:
            connection.sendall(sent)
            while not _is_whole(sent, received) and (chunk := connection.recv(1 << 16)):
                received += chunk
        except (ConnectionError, BrokenPipeError):  # closed while it was still being sent
            pass
        return received


def _is_whole(sent: bytes, received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and (sent.startswith(b"HEAD") or length is None or len(body) >= int(length[1]))


Asked = Callable[[bytes], Verdict]


def judge(process: subprocess.Popen[str], port: int) -> Asked:
    """The judge of a service: what becomes of a request, in words."""

    def once(sent: bytes) -> Verdict:
        before_mb, started_s = resident_mb(process.pid), time.monotonic()
        try:
            received = answered(port, sent)
        except TimeoutError:
            return Verdict("too slow", repr(sent[:300]))
        if process.poll() is not None:
            return Verdict("signal", f"the service ended with {process.returncode} after {sent[:300]!r}")
        if (resident_mb(process.pid) - before_mb) * 2**20 > GROWTH_BYTES:
            return Verdict("too much memory", repr(sent[:300]))
        if time.monotonic() - started_s > SECONDS:
            return Verdict("too slow", repr(sent[:300]))
        status = re.match(rb"HTTP/1\.1 (\d{3})", received)
        if status is None:
            return Verdict("refused", "closed")
        code = int(status[1])
        if code >= 500:
            return Verdict("raw error", f"{code} for {sent[:300]!r}: {received[-500:]!r}")
        return Verdict("read" if code < 400 else "refused", str(code))

    def asked(sent: bytes) -> Verdict:
        # A slow request is sent a second time, because the machine may have been busy.
        verdict = once(sent)
        return once(sent) if verdict.outcome == "too slow" else verdict

    return asked


def run(names: Sequence[str], count: int, seed: int) -> Tally:
    """Send a number of requests to a service, equally many of each kind; errors in its log are faults, too.

    Raises:
        RuntimeError: A question that nobody damaged is not answered.
    """
    # A question may take less time than what counts as too slow.
    with service("--body-seconds", "2", "--max-seconds", "16") as (process, port, log):
        asked = judge(process, port)
        for path, question in QUESTIONS:
            verdict = asked(request("POST", path, json.dumps(question).encode()))
            if verdict.outcome != "read":
                raise RuntimeError(f"a good question is not answered: {path} {question}: {verdict}")
        shares = dict.fromkeys(KINDS, -(-count // len(KINDS)))
        tally = fuzz(shares, seed, lambda kind, rng: asked(KINDS[kind](rng)))
        tally.faults += [line for line in log if '"level": "error"' in line]
        return tally


if __name__ == "__main__":
    main(__doc__ or "", run, count=3000)
