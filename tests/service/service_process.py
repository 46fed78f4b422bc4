"""A service in a process of its own, as `joulecast serve` runs it."""

import http.client
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from waiting import until

from joulecast.hardware import find_gpu
from joulecast.predictors.board.profile import BoardProfile
from joulecast.zoo.catalogue import DEFAULT_PREDICTOR, entry_name
from joulecast.zoo.places import push

TOKEN = "a-token-for-the-tests"  # noqa: S105  # which is no secret
NARROW = ["--max-body-bytes", "20000", "--max-batch", "3", "--max-operations", "40", "--body-seconds", "1"]
NARROW += ["--max-choices", "50", "--cors-origin", "https://example.org", "--no-extraction"]
NARROW += ["--cached-answers-bytes", "200000"]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Service:
    process: subprocess.Popen[str]
    port: int
    log: Path
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, question: Any = None, *, method: str | None = None, **headers: str) -> Answer:
        body = question if isinstance(question, bytes | None) else json.dumps(question).encode()
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)) as connection:
            connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def pull(self, entry: Path) -> None:
        """Put a predictor in the place of the A30's default, as a user does beside a service that runs."""
        name, source = entry_name(find_gpu("A30"), DEFAULT_PREDICTOR, "inference"), self.log.parent / "source"
        source.mkdir()
        push(entry, name, str(source))
        command = [sys.executable, "-m", "joulecast", "zoo", "pull", "--replace", str(source)]
        subprocess.run(command, check=True, env={**os.environ, "JOULECAST_CACHE": str(self.log.parent / "cache")})

    def lines(self) -> list[dict[str, Any]]:
        return logged(self.log)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=300)


PROFILE = BoardProfile(
    gpu="NVIDIA H100 80GB HBM3",
    board={"name": "a board"},
    software={},
    predictors={"inference": "any-gpu/forest"},
    measured=("2026-11-23", "2026-11-23"),
    operations=40,
    factors={"DRAM": 1.2, "products on other units": 1.3, "launches in inference": 0.7, "static power": 1.1},
    errors={"time": {"all": np.full(30, 0.05)}},
)
"""A calibration, which the service of most tests knows as "desk"."""


def logged(log: Path) -> list[dict[str, Any]]:
    """The events of a log, without a last one that is not written to its end."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def start(folder: Path, *options: str, **environment: str) -> Service:
    log = folder / "log.jsonl"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "joulecast", "serve", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "JOULECAST_CACHE": str(folder / "cache"), **environment},
        )

    def is_ready() -> bool:
        assert process.poll() is None, f"the service ended: {log.read_text()}"
        return any(event["event"] == "ready" for event in logged(log))

    try:
        assert process.stdout is not None
        with process.stdout as printed:
            said = printed.readline()  # joulecast serves http://127.0.0.1:PORT/
        until(is_ready, otherwise=log.read_text)
        return Service(process, int(said.split("/")[2].split(":")[1]), log)
    except BaseException:
        process.kill()
        process.wait()
        raise
