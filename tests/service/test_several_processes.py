"""A service of several processes behind one port."""

import os
import re
import signal
import socket
from http.client import HTTPException

import pytest
from waiting import until

pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
from uvicorn import Config

from joulecast.service import Settings
from joulecast.service.server import Supervisor


def process_of(running):
    """The process that answers a new connection; None where it is not ready, or was killed meanwhile."""
    try:
        answer = running.ask("/v1/ready")
    except (OSError, HTTPException):
        return None
    return answer.json["process"] if answer.status == 200 else None


def reloads(running):
    """Process -> changes of predictors that it has noticed; whichever process answers, it says so of all."""
    text = running.ask("/v1/metrics").text
    assert all("process=" in line for line in text.splitlines() if not line.startswith("#"))
    assert text.count("# TYPE process_cpu_seconds_total counter\n") == 1
    return dict(re.findall(r'joulecast_reloads_total{process="(\d+)"} (\d+)\.0', text))


def test_two_processes_share_a_port_and_are_replaced(small_entry, started):
    running = started("--workers", "2", "--no-extraction")
    ready = set()
    until(lambda: ready.add(process_of(running)) or len(ready - {None}) == 2)
    first, second = ready - {None}
    assert running.process.pid not in ready

    running.pull(small_entry)  # Both notice it.
    until(lambda: reloads(running) == {str(first): "1", str(second): "1"})

    os.kill(first, signal.SIGKILL)
    until(lambda: ready.add(process_of(running)) or len(ready - {None}) == 3)

    # Without the parent process the workers end, and the port is free again.
    running.process.kill()
    until(lambda: not is_open(running.port))


def test_the_end_of_a_process_is_noticed_at_once():
    """Even after it was asked for a sign of life: its end of their pipe is open in no other process."""
    supervisor = object.__new__(Supervisor)  # which would handle the signals of this process
    supervisor.config, supervisor.sockets, supervisor.processes_num = Config("nothing:app"), [], 1
    supervisor.processes = []
    supervisor.init_processes()
    (process,) = supervisor.processes
    process.parent_conn.send(b"ping")
    process.process.kill()
    process.join()
    assert process.parent_conn.poll(20)


def is_open(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_the_memory_of_caches_is_divided():
    of_all = Settings(workers=4, cached_answers_bytes=100)
    of_one = of_all.of_one_worker()
    assert (of_one.cached_answers_bytes, of_one.cached_networks_bytes) == (25, 8_000_000)
    assert of_one.cached_predictions_bytes == 16_000_000
    assert (of_one.max_waiting, of_one.threads) == (256, 2)
