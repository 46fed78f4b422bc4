"""How many questions the service answers, how quickly, and whether its memory stays flat.

    python benchmarks/service.py                    # each kind of load for 10 s, at 32 connections
    python benchmarks/service.py --seconds 600 mixed
    python benchmarks/service.py --seconds 60 --clients 32 --hostile=memory,bombs mixed
    python benchmarks/service.py --workers 2 clocks
    python benchmarks/service_table.py              # 1, 2 and 4 processes, up to 500 connections: SERVICE.md

Starts `joulecast serve` on a free port of this machine and asks it over the loopback; the load needs a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
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


async def connection(
    port: int, questions: Iterator[tuple[str, dict[str, object]]], until_s: float, rate: float, address: str
) -> list:
    """Send one request after the other over one connection; with a rate, at most this number per second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    seen = []
    due_s = time.perf_counter()
    while time.perf_counter() < until_s:
        if rate:
            due_s += random.expovariate(rate)
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        path, question = next(questions)
        body = json.dumps(question).encode()
        lines = [
            f"POST /v1/{path} HTTP/1.1",
            "Host: x",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        head = "\r\n".join([*lines, "", ""])
        started_s = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", answer).group(1))
        await reader.readexactly(length)
        # With a rate, the time that a request waits for its turn is part of the time of its answer.
        since_s = min(due_s, started_s) if rate else started_s
        seen.append((time.perf_counter() - since_s, int(answer[9:12])))
    writer.close()
    return seen


async def load(
    port: int, name: str, seconds: float, connections: int, rate: float, clients: int = 1
) -> dict[str, object]:
    """Send requests over connections from several addresses, because the service shares its time among these."""
    questions = LOADS[name](random.Random(0))
    until_s = time.perf_counter() + seconds
    addresses = [f"127.0.2.{1 + number % clients}" for number in range(connections)]
    each = [connection(port, questions, until_s, rate / connections, address) for address in addresses]
    seen = [one for many in await asyncio.gather(*each) for one in many]
    at = {percent: quantile_ms([elapsed for elapsed, _ in seen], percent) for percent in (50, 90, 99)}
    return {
        "load": name,
        "asked per s": rate or "as many as it takes",
        "answered per s": round(len(seen) / seconds, 1),
        **{f"p{p} ms": value for p, value in at.items()},
        "status": dict(Counter(status for _, status in seen)),
    }


def processes(pid: int) -> list[int]:
    """A process and those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(one for child in children for one in processes(int(child)))]


def cpu_s(pid: int) -> float:
    """CPU time of a service with all its processes, which depends little on other programs on the machine."""
    ticks = 0
    for each in processes(pid):
        user, system = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Resident memory of a service with all its processes; pages that they share count for each."""
    statuses = [Path(f"/proc/{each}/status").read_text(encoding="ascii") for each in processes(pid)]
    return sum(int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) for status in statuses) / 1024


async def watch(pid: int, every_s: float, into: list[float]) -> None:
    while True:
        into.append(round(resident_mb(pid)))
        await asyncio.sleep(every_s)


async def measure(
    process: subprocess.Popen[str],
    port: int,
    loads: Sequence[str],
    seconds: float,
    connections: int,
    *,
    rates: Sequence[float] = (0,),
    clients: int = 1,
    hostile: str = "",
) -> list[dict[str, object]]:
    """Measure each load at each rate, after a few seconds of warming up, and print each result.

    Beside hostile clients, the time of /v1/health and the memory before, at most, and after the attack are measured.
    """
    await load(port, "repeated", 3, 4, 0)
    attacking, asking = None, None
    health_s: list[float] = []
    calm: list[float] = []
    if hostile:
        for name in loads:
            await load(port, name, 3, connections, 0, clients)
        calm.append(round(resident_mb(process.pid)))
        script = str(Path(__file__).with_name("hostile_clients.py"))
        attacking = subprocess.Popen([sys.executable, script, str(port), hostile])
        await asyncio.sleep(5)  # it makes its requests first
        asking = asyncio.create_task(healthy(port, health_s))
    results = []
    for name in loads:
        for rate in rates:
            memory: list[float] = []
            watching = asyncio.create_task(watch(process.pid, max(1.0, seconds / 20), memory))
            before_s = cpu_s(process.pid)
            result = await load(port, name, seconds, connections, rate, clients)
            watching.cancel()
            each_ms = 1e3 * (cpu_s(process.pid) - before_s) / max(1, sum(result["status"].values()))
            result |= {
                "CPU ms each": round(each_ms, 3),
                "MB": memory if len(memory) > 12 and not hostile else max(memory),
            }
            if hostile:
                result |= {"health p99 ms": quantile_ms(health_s, 99), "health max ms": quantile_ms(health_s, 100)}
            print(json.dumps(result), flush=True)
            results.append(result)
    if attacking is not None and asking is not None:
        asking.cancel()
        attacking.terminate()
        attacking.wait()
        await asyncio.sleep(10)
        calm.append(round(resident_mb(process.pid)))
        results[-1]["MB before and after"] = calm
        print(json.dumps(results[-1]), flush=True)
    return results


def quantile_ms(seconds: Sequence[float], percent: float) -> float:
    """Milliseconds within which this percentage of answers came."""
    times = sorted(seconds)
    return round(1e3 * times[min(len(times) - 1, int(percent / 100 * len(times)))], 1)


async def healthy(port: int, into: list[float]) -> None:
    """Ask for /v1/health ten times a second, from an address and on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.3.1", 0))
    while True:
        started_s = time.perf_counter()
        writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"}")
        into.append(time.perf_counter() - started_s)
        await asyncio.sleep(0.1)


@contextmanager
def service(workers: int = 1, *, extracts: bool = False) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A service as a process, with the port that it listens on."""
    started_s = time.perf_counter()
    command = [sys.executable, "-m", "joulecast.cli", "serve", "--port", "0", "--log-level", "info"]
    command += ["--workers", str(workers), *([] if extracts else ["--no-extraction"])]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    port, ready = None, 0
    for line in process.stderr or ():
        port = port or (re.search(r"http://127.0.0.1:(\d+)", line) or [None, None])[1]
        ready += '"event": "ready"' in line
        if port and ready == workers:
            break
    print(f"ready after {time.perf_counter() - started_s:.2f} s")
    # The log has to be read, because the service would otherwise wait when the pipe is full.
    threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
    try:
        yield process, int(port)
    finally:
        process.terminate()
        process.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", default=list(LOADS), help=", ".join(LOADS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--clients", type=int, default=1, help="addresses that the connections come from, up to 254")
    parser.add_argument("--workers", type=int, default=1, help="processes of the service")
    parser.add_argument(
        "--hostile",
        nargs="?",
        const="memory,unknown,slow,methods",
        default="",
        help="beside two hostile clients of each kind (see hostile_clients.py), which it traces for",
    )
    parser.add_argument(
        "--rate", type=float, action="append", help="questions a second, instead of as many as it takes"
    )
    a = parser.parse_args()
    options = {"rates": a.rate or [0], "clients": a.clients, "hostile": a.hostile}
    with service(a.workers, extracts=bool(a.hostile)) as (process, port):
        asyncio.run(measure(process, port, a.loads, a.seconds, a.connections, **options))


if __name__ == "__main__":
    main()
