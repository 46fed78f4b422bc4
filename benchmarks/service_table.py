"""The service with 1, 2 and 4 processes, with up to 500 connections, and beside hostile clients.

python benchmarks/service_table.py        # five minutes; writes SERVICE.md
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from service import LOADS, measure, service

OUT = Path(__file__).with_name("SERVICE.md")


class Case(NamedTuple):
    """A load on a service; hostile is beside two hostile clients of each kind."""

    workers: int
    loads: tuple[str, ...]
    seconds: float
    connections: int = 32
    hostile: bool = False


CASES = (
    *(Case(workers, tuple(LOADS), 15.0) for workers in (1, 2, 4)),
    *(Case(1, ("mixed",), 30.0, connections) for connections in (256, 500)),
    Case(1, ("mixed",), 30.0, hostile=True),
)
HEADER = ["processes", "load", "connections", "answers a second", "median", "90 % within", "99 % within"]
HEADER += ["CPU each", "refused (429)", "5xx", "memory"]


def row(case: Case, result: dict) -> list[str]:
    status = result["status"]
    answers = sum(status.values())
    refused = status.get(429, 0) / answers
    memory = result["MB"][-1] if isinstance(result["MB"], list) else result["MB"]
    return [
        str(case.workers),
        result["load"] + (", beside hostile clients" if case.hostile else ""),
        str(case.connections),
        f"{result['answered per s']:,.0f}",
        *(f"{result[f'p{p} ms'] / 1e3:.3f} s" for p in (50, 90, 99)),
        f"{result['CPU ms each']:.2f} ms",
        f"{100 * refused:.1f} %" if refused else "none",
        str(sum(count for code, count in status.items() if code >= 500) or "none"),
        f"{memory:.0f} MB",
    ]


def main() -> None:
    load_before = os.getloadavg()[0]
    rows = []
    for case in CASES:
        with service(case.workers, extracts=case.hostile) as (process, port):
            clients = case.connections if case.hostile else 1
            found = asyncio.run(
                measure(
                    process, port, case.loads, case.seconds, case.connections, clients=clients, hostile=case.hostile
                )
            )
        rows += [row(case, result) for result in found]
    lines = ["| " + " | ".join(cells) + " |" for cells in (HEADER, ["---:"] * len(HEADER), *rows)]
    OUT.write_text(
        "# The service under load\n\n"
        f"Made by `python benchmarks/{Path(sys.argv[0]).name}`; do not edit. {platform.machine()}, {os.cpu_count()} "
        f"processors for service and load together, on which {load_before:.1f} other programs ran when it began. "
        "Full load: each connection asks again as soon as it is answered. The mix has models that do not exist, and "
        "their answers are 422.\n\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )
    print(OUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
