"""How many questions the service answers, how quickly, and whether its memory stays flat.

    python benchmarks/service.py                    # each kind of load for 10 s, at 32 connections
    python benchmarks/service.py --seconds 600 mixed
    python benchmarks/service.py --seconds 60 --clients 32 --hostile=memory,bombs mixed
    python benchmarks/service.py --table            # up to 500 connections, attacks: SERVICE.md

Starts `joulecast serve` on a free port of this machine and asks it over the loopback; the load needs a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from hostile_clients import ATTACKS

OUT = Path(__file__).with_name("SERVICE.md")
MODELS = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16", "densenet121")
GPUS = ("A30", "H100 SXM", "T4", "L4", "A100 PCIe 40GB")


def predict(model: str, gpu: str, **more: object) -> tuple[str, dict[str, object]]:
    return "predict", {"model": model, "input_shape": [32, 3, 224, 224], "gpu": gpu, **more}


def repeated(rng: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    """Repeated requests: models and GPUs, each of which was answered once before the measurement."""
    while True:
        yield predict(rng.choice(MODELS), rng.choice(GPUS))


def clocks(rng: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    """Requests for known networks at clocks that were not requested before."""
    while True:
        yield predict(rng.choice(MODELS), rng.choice(GPUS), clock_mhz=round(rng.uniform(600, 1400), 6))


def mixed(rng: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    """A mix of all requests: repeated and new ones, sweeps, choices, many networks, and invalid ones."""
    old, new = repeated(rng), clocks(rng)
    job = {"model": "resnet18", "gpus": ["A30", "T4"]}
    for number in itertools.count():
        kind = rng.random()
        shape = [rng.randint(1, 64), 3, 224, 224]
        if kind < 0.7:
            yield next(old)
        elif kind < 0.85:
            yield next(new)
        elif kind < 0.9:
            yield predict("resnet50", "A30", input_shape=shape, mode="training")
        elif kind < 0.93:
            yield "sweep", {**job, "input_shape": shape}
        elif kind < 0.96:
            yield "best", {**job, "input_shape": shape, "objective": "edp"}
        elif kind < 0.98:
            yield "extract", {"model": "vit_b_16", "input_shape": shape}
        elif kind < 0.99:
            yield "predict_many", {"networks": [{"model": m} for m in MODELS], "input_shape": shape, "gpu": "A30"}
        else:
            yield predict(f"no-such-model-{number}", "A30")


LOADS: dict[str, Callable[[random.Random], Iterator[tuple[str, dict[str, object]]]]] = {
    "repeated": repeated,
    "clocks": clocks,
    "mixed": mixed,
}


class Case(NamedTuple):
    """A load on a service.

    Args:
        load: A name of LOADS.
        rate: Questions a second over all connections; 0 for as many as are answered.
        clients: Addresses that the connections come from: the service shares its time among these.
        hostile: Kinds of clients that attack the service meanwhile, two of each; see hostile_clients.py.
    """

    load: str
    seconds: float = 10.0
    connections: int = 32
    rate: float = 0.0
    clients: int = 1
    hostile: str = ""


TABLE = (
    *(Case(load, 15.0) for load in LOADS),
    *(Case("mixed", 30.0, connections) for connections in (256, 500)),
)
ATTACKED = (Case("clocks", 15.0), *(Case("clocks", 12.0, hostile=name) for name in ATTACKS))


async def connection(port: int, questions: Iterator[Any], until_s: float, rate: float, address: str) -> list[Any]:
    """Send one request after the other over one connection; return the seconds and status of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    seen = []
    due_s = time.perf_counter()
    while time.perf_counter() < until_s:
        if rate:
            due_s += random.expovariate(rate)
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        path, question = next(questions)
        body = json.dumps(question).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        started_s = time.perf_counter()
        writer.write(f"{head}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", answer).group(1))
        await reader.readexactly(length)
        # With a rate, the time that a request waits for its turn is part of the time of its answer.
        since_s = min(due_s, started_s) if rate else started_s
        seen.append((time.perf_counter() - since_s, int(answer[9:12])))
    writer.close()
    return seen


async def asked(port: int, case: Case) -> list[Any]:
    """Send the requests of a case; return the seconds and status of each."""
    questions, until_s = LOADS[case.load](random.Random(0)), time.perf_counter() + case.seconds
    addresses = [f"127.0.2.{1 + number % case.clients}" for number in range(case.connections)]
    rate = case.rate / case.connections
    each = await asyncio.gather(*(connection(port, questions, until_s, rate, address) for address in addresses))
    return list(itertools.chain.from_iterable(each))


def cpu_s(pid: int) -> float:
    """CPU time of a service with all its processes, which depends little on other programs on the machine."""
    service = psutil.Process(pid)
    times = [each.cpu_times() for each in (service, *service.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def resident_mb(pid: int) -> float:
    """Resident memory of a service with all its processes; pages that they share count for each."""
    service = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (service, *service.children(recursive=True))) / 2**20


def quantile_ms(seconds: Sequence[float], percent: float) -> float:
    """Milliseconds within which this percentage of answers came."""
    times = sorted(seconds)
    return round(1e3 * times[min(len(times) - 1, int(percent / 100 * len(times)))], 1)


async def watch(pid: int, every_s: float, into: list[int]) -> None:
    while True:
        into.append(round(resident_mb(pid)))
        await asyncio.sleep(every_s)


async def healthy(port: int, into: list[float]) -> None:
    """Ask for /v1/health ten times a second, from an address and on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.3.1", 0))
    while True:
        started_s = time.perf_counter()
        writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"}")
        into.append(time.perf_counter() - started_s)
        await asyncio.sleep(0.1)


async def measured(process: subprocess.Popen[str], port: int, case: Case) -> dict[str, Any]:
    """Measure one load after a few seconds of warming up."""
    memory: list[int] = []
    every_s = max(1.0, case.seconds / 20)
    watching = asyncio.create_task(watch(process.pid, every_s, memory))
    before_s = cpu_s(process.pid)
    seen = await asked(port, case)
    watching.cancel()
    times = [elapsed for elapsed, _ in seen]
    return {
        "load": case.load,
        "asked per s": case.rate or "as many as it takes",
        "answered per s": round(len(seen) / case.seconds, 1),
        **{f"p{percent} ms": quantile_ms(times, percent) for percent in (50, 90, 99)},
        "status": dict(Counter(status for _, status in seen)),
        "CPU ms each": round(1e3 * (cpu_s(process.pid) - before_s) / max(1, len(seen)), 3),
        "MB": memory if len(memory) > 12 and not case.hostile else max(memory),
    }


async def attacked(process: subprocess.Popen[str], port: int, case: Case) -> dict[str, Any]:
    """Measure one load beside hostile clients, the time of /v1/health, and the memory before and after the attack."""
    health_s: list[float] = []
    before_mb = round(resident_mb(process.pid))
    script = str(Path(__file__).with_name("hostile_clients.py"))
    attacking = subprocess.Popen([sys.executable, script, str(port), case.hostile])
    await asyncio.sleep(5)  # it makes its requests first
    asking = asyncio.create_task(healthy(port, health_s))
    result = await measured(process, port, case)
    asking.cancel()
    attacking.terminate()
    attacking.wait()
    await asyncio.sleep(10)
    result |= {"health p99 ms": quantile_ms(health_s, 99), "health max ms": quantile_ms(health_s, 100)}
    return {**result, "MB before and after": [before_mb, round(resident_mb(process.pid))]}


@contextmanager
def service(*options: str) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """A service as a process, with the port that it listens on, and the lines of its log, which grow."""
    started_s = time.perf_counter()
    command = [sys.executable, "-m", "joulecast", "serve", "--port", "0", "--log-level", "info"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    log: list[str] = []
    # It has to be read to the end, because the service would otherwise wait when the pipe is full.
    threading.Thread(target=lambda: log.extend(iter(process.stderr.readline, "")), daemon=True).start()
    while not any('"event": "ready"' in line for line in log):
        if process.poll() is not None:
            raise SystemExit(f"the service ended: {''.join(log)}")
        time.sleep(0.02)
    print(f"ready after {time.perf_counter() - started_s:.2f} s")
    port = next(int(found[1]) for line in log if (found := re.search(r"http://127.0.0.1:(\d+)", line)))
    try:
        yield process, port, log
    finally:
        process.terminate()
        process.wait(timeout=30)


def results(cases: Sequence[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Measure cases on services of their own, one for each attack."""
    for hostile, some in itertools.groupby(cases, lambda case: case.hostile):
        with service(*([] if hostile else ["--no-extraction"])) as (process, port, _):
            asyncio.run(asked(port, Case("repeated", 3, 4)))
            for case in some:
                if hostile:
                    asyncio.run(asked(port, case._replace(seconds=3)))
                result = asyncio.run((attacked if hostile else measured)(process, port, case))
                print(json.dumps(result), flush=True)
                yield case, result


def row(case: Case, result: dict[str, Any]) -> dict[str, str]:
    """Column -> cell of the table."""
    status, memory = result["status"], result["MB"]
    refused = status.get(429, 0) / sum(status.values())
    failed = sum(count for code, count in status.items() if code >= 500)
    seconds = {name: f"{result[name] / 1e3:.3f} s" for name in result if name.endswith(" ms")}
    if case in ATTACKED:
        cells = {"attack": case.hostile or "(none)"}
    else:
        cells = {"load": case.load, "connections": str(case.connections)}
    cells |= {
        "answers a second": f"{result['answered per s']:,.0f}",
        "median": seconds["p50 ms"],
        "90 % within": seconds["p90 ms"],
        "99 % within": seconds["p99 ms"],
        "CPU each": f"{result['CPU ms each']:.2f} ms",
        "refused (429)": f"{100 * refused:.1f} %" if refused else "none",
        "5xx": str(failed or "none"),
        "memory, at most": f"{max(memory) if isinstance(memory, list) else memory:.0f} MB",
    }
    if case in ATTACKED:
        before, after = result.get("MB before and after", ("", ""))
        cells |= (
            {"before": f"{before} MB", "10 s after": f"{after} MB"}
            if case.hostile
            else {"before": "", "10 s after": ""}
        )
        cells |= {
            "health, 99 % within": seconds.get("health p99 ms", ""),
            "health, at most": seconds.get("health max ms", ""),
        }
    return cells


def table(cases: Sequence[Case]) -> str:
    """A table in Markdown."""
    rows = [row(case, result) for case, result in results(cases)]
    lines = [
        "| " + " | ".join(cells) + " |" for cells in (rows[0], ["---:"] * len(rows[0]), *(r.values() for r in rows))
    ]
    return "\n".join(lines)


def report() -> str:
    """Both tables, with how busy the machine was."""
    return f"""# The service under load

Made by `python benchmarks/service.py --table`; do not edit. {platform.machine()}, {os.cpu_count()} processors for \
service and load together, on which {os.getloadavg()[0]:.1f} other programs ran when it began. Full load: each \
connection asks again as soon as it is answered. The mix has models that do not exist, and their answers are 422.

{table(TABLE)}

## Beside hostile clients

32 connections of one client that ask for known networks at new clocks, beside two clients of each \
kind of `benchmarks/hostile_clients.py`, which share the processors; the first row is without an attack. Health is \
asked for ten times a second by a third client. Memory is that of all processes of the service, the one that traces \
included where the attack starts it.

{table(ATTACKED)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", default=list(LOADS), help=", ".join(LOADS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--clients", type=int, default=1, help="addresses that the connections come from, up to 254")
    kinds = ",".join(ATTACKS)
    parser.add_argument("--hostile", nargs="?", const=kinds, default="", help=f"beside two clients of each: {kinds}")
    parser.add_argument("--rate", type=float, default=0.0, help="questions a second, instead of as many as it takes")
    parser.add_argument("--table", action="store_true", help=f"write {OUT.name}, eight minutes")
    a = parser.parse_args()
    if a.table:
        OUT.write_text(report(), encoding="utf-8")
        return
    options = (a.seconds, a.connections, a.rate, a.clients, a.hostile)
    list(results([Case(load, *options) for load in a.loads]))


if __name__ == "__main__":
    main()
