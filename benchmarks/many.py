"""How the time and memory of `predict_many` grow with the number of networks: `python benchmarks/many.py`.

Writes benchmarks/MANY.md and MANY.svg. Each size runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import joulecast
from joulecast import Operation
from joulecast.operations.operation_list import IDENTITY, identity
from joulecast.rendering.pictures import Line, Picture, lines_over

SIZES = (1_000, 5_000, 20_000, 50_000, 100_000)
BLOCKS, CHANNELS = 20, tuple(range(16, 257, 16))
OUT = Path(__file__).with_name("MANY.md")


@cache
def _layer(batch: int, channels: int, side: int, out_channels: int, kernel_size: int) -> tuple[Operation, ...]:
    sizes = {"out_channels": out_channels, "kernel_size": kernel_size, "padding": kernel_size // 2}
    conv = Operation("conv2d", [(batch, channels, side, side)], sizes, precision="tf32")
    return conv, Operation("batch_norm", [conv.output_shape]), Operation("relu", [conv.output_shape])


def candidates(count: int) -> Iterator[list[Operation]]:
    """Networks of 20 blocks: a convolution of any of 16 widths and 4 kernels, a batch norm and a relu."""
    draw = random.Random(0)
    for _ in range(count):
        channels, operations = 3, []
        for block in range(BLOCKS):
            out_channels = draw.choice(CHANNELS)
            operations += _layer(8, channels, 112 >> (block // 5), out_channels, draw.choice((1, 3, 5, 7)))
            channels = out_channels
        yield operations


def table_of(count: int) -> dict[str, list[object]]:
    """The candidates as columns."""
    columns: dict[str, list[object]] = {name: [] for name in ("network", "count", *IDENTITY)}
    named = cache(identity)
    for number, operations in enumerate(candidates(count)):
        for operation in operations:
            columns["network"].append(number)
            columns["count"].append(1)
            for name, value in zip(IDENTITY, named(operation), strict=True):
                columns[name].append(value)
    return columns


def memory_mb() -> tuple[float, float]:
    """Memory of this process now, and the most that it ever had."""
    status = Path("/proc/self/status").read_text()
    now, most = (re.search(rf"{name}:\s+(\d+)", status) for name in ("VmRSS", "VmHWM"))
    return float(now[1]) / 1024, float(most[1]) / 1024


def measure(count: int) -> None:
    """Print seconds of wall time and of processor, and megabytes on top of the table, of predicting a table."""
    table = table_of(count)
    joulecast.predict_many(table_of(10), "A30")
    before_mb, _ = memory_mb()
    start, busy = time.perf_counter(), time.process_time()
    predictions = joulecast.predict_many(table, "A30")
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - busy
    assert len(predictions) == count  # noqa: S101  # (a benchmark of something else would be worth nothing)
    print(wall_s, cpu_s, memory_mb()[1] - before_mb)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", help="measure this many networks only, and write nothing")
    arguments = parser.parse_args()
    if arguments.count:
        measure(arguments.count)
        return
    rows = []
    for count in SIZES:
        printed = subprocess.run([sys.executable, __file__, str(count)], check=True, capture_output=True, text=True)
        rows.append((count, *map(float, printed.stdout.split())))
    lines = [Line("seconds of processor", [(count, cpu_s) for count, _, cpu_s, _ in rows], len(rows) - 1)]
    Picture(lines_over(lines, "networks", "s", "predict_many")).save(OUT.with_suffix(".svg"))
    text = [
        "# Many networks at once",
        "",
        f"Made by `python benchmarks/many.py`; do not edit. {platform.machine()}, Python {platform.python_version()}. "
        f"Candidates of {3 * BLOCKS} operations from one search space, as a table of columns, on an A30. Memory is "
        "what predicting needs beside the table.",
        "",
        "| networks | rows | wall time | processor time | per network | memory |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {count:,} | {3 * BLOCKS * count:,} | {wall_s:.1f} s | {cpu_s:.1f} s | {1e6 * cpu_s / count:.0f} us | "
            f"{more_mb:.0f} MB |"
            for count, wall_s, cpu_s, more_mb in rows
        ),
        "",
        "![Seconds by number of networks](MANY.svg)",
        "",
    ]
    OUT.write_text("\n".join(text), encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
