"""The service with 1, 2 and 4 processes, with up to 500 connections, and beside hostile clients.

python benchmarks/service_table.py              # eleven minutes; writes SERVICE.md
python benchmarks/service_table.py attacks      # only the part about hostile clients, six minutes
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from hostile_clients import ATTACKS
from service import LOADS, measure, service

OUT = Path(__file__).with_name("SERVICE.md")
SECTION = "## Beside hostile clients"


class Case(NamedTuple):
    """A load on a service; hostile names the kinds of clients that attack it meanwhile, two of each."""

    workers: int
    loads: tuple[str, ...]
    seconds: float
    connections: int = 32
    hostile: str = ""


CASES = (
    *(Case(workers, tuple(LOADS), 15.0) for workers in (1, 2, 4)),
    *(Case(1, ("mixed",), 30.0, connections) for connections in (256, 500)),
)
UNDER_ATTACK = (Case(1, ("clocks",), 15.0), *(Case(1, ("clocks",), 12.0, hostile=name) for name in ATTACKS))
HEADER = ["processes", "load", "connections", "answers a second", "median", "90 % within", "99 % within"]
HEADER += ["CPU each", "refused (429)", "5xx", "memory"]
HEADER_OF_ATTACKS = ["attack", "answers a second", "median", "99 % within", "refused (429)", "5xx"]
HEADER_OF_ATTACKS += ["health, 99 % within", "health, at most", "memory before", "at most", "10 s after"]


def statuses(result: dict) -> list[str]:
    """The share of answers that were refused as too many, and the number of errors of the service."""
    status = result["status"]
    refused = status.get(429, 0) / sum(status.values())
    failed = sum(count for code, count in status.items() if code >= 500)
    return [f"{100 * refused:.1f} %" if refused else "none", str(failed or "none")]


def row(case: Case, result: dict) -> list[str]:
    memory = result["MB"][-1] if isinstance(result["MB"], list) else result["MB"]
    return [
        str(case.workers),
        result["load"],
        str(case.connections),
        f"{result['answered per s']:,.0f}",
        *(f"{result[f'p{p} ms'] / 1e3:.3f} s" for p in (50, 90, 99)),
        f"{result['CPU ms each']:.2f} ms",
        *statuses(result),
        f"{memory:.0f} MB",
    ]


def row_of_attack(case: Case, result: dict) -> list[str]:
    times = [f"{result[f'p{p} ms'] / 1e3:.3f} s" for p in (50, 99)]
    found = [case.hostile or "(none)", f"{result['answered per s']:,.0f}", *times, *statuses(result)]
    if not case.hostile:
        return [*found, "", "", "", f"{max(result['MB']):.0f} MB", ""]
    before, after = result["MB before and after"]
    health = [f"{result[name] / 1e3:.3f} s" for name in ("health p99 ms", "health max ms")]
    return [*found, *health, *(f"{each:.0f} MB" for each in (before, result["MB"], after))]


def measured(case: Case) -> list[dict]:
    with service(case.workers, extracts=bool(case.hostile)) as (process, port):
        return asyncio.run(measure(process, port, case.loads, case.seconds, case.connections, hostile=case.hostile))


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---:"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def under_load() -> str:
    load_before = os.getloadavg()[0]
    rows = [row(case, result) for case in CASES for result in measured(case)]
    return (
        "# The service under load\n\n"
        f"Made by `python benchmarks/{Path(sys.argv[0]).name}`; do not edit. {platform.machine()}, {os.cpu_count()} "
        f"processors for service and load together, on which {load_before:.1f} other programs ran when it began. "
        "Full load: each connection asks again as soon as it is answered. The mix has models that do not exist, and "
        "their answers are 422.\n\n" + table(HEADER, rows)
    )


def under_attack() -> str:
    load_before = os.getloadavg()[0]
    rows = [row_of_attack(case, measured(case)[0]) for case in UNDER_ATTACK]
    return (
        f"{SECTION}\n\nOne process, and 32 connections of one client that ask for known networks at new clocks, beside "
        "two clients of each kind of `benchmarks/hostile_clients.py`. Attackers, load and service share the "
        f"{os.cpu_count()} processors, on which {load_before:.1f} other programs ran when it began; the first row is "
        "without an attack, as a comparison. Health is asked for ten times a second by a third client. Memory is that "
        "of all processes of the service, the one that traces included where the attack starts it.\n\n"
        + table(HEADER_OF_ATTACKS, rows)
    )


def main() -> None:
    calm = OUT.read_text(encoding="utf-8").partition(f"\n{SECTION}")[0] if "attacks" in sys.argv else under_load()
    OUT.write_text(f"{calm.rstrip()}\n\n{under_attack()}", encoding="utf-8")
    print(OUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
