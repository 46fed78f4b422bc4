"""Predictions beside what others published: runs with their errors, and tables of these, for all reports."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from joulecast.operations.network import Network

LEVEL = 0.9
LEGEND = (
    "Cells: mean, median and worst absolute error, bias (geometric mean), and where one is stated, "
    "share within the 90 % interval."
)


class Compared(NamedTuple):
    """A published run with its prediction.

    Args:
        run: The run, as its report reads it.
        logs: Quantity -> log ratio of predicted over published, for the quantities that were published.
        within: Quantity -> whether the published value lies in the 90 % interval; empty where there is no interval.
    """

    run: Any
    logs: Mapping[str, float]
    within: Mapping[str, bool]

    @classmethod
    def of(
        cls,
        run: Any,
        values: Mapping[str, tuple[float, float]],
        intervals: Mapping[str, tuple[float, float]] | None = None,
    ) -> Compared:
        """Compare pairs of predicted and published values, with intervals around the predicted ones."""
        logs = {name: math.log(predicted / published) for name, (predicted, published) in values.items()}
        bounds = intervals or {}
        within = {name: low <= values[name][1] <= high for name, (low, high) in bounds.items() if name in values}
        return cls(run, logs, within)

    def error(self, quantity: str = "time") -> str:
        """An error in words: "+3 %"."""
        return f"{100 * math.expm1(self.logs[quantity]):+.0f} %"


def cell(some: Sequence[Compared], quantity: str) -> str:
    """The errors of a quantity over some runs, see LEGEND; empty where none was published."""
    logs = np.array([each.logs[quantity] for each in some if quantity in each.logs])
    if not len(logs):
        return ""
    errors = 100 * np.abs(np.expm1(logs))
    text = f"{errors.mean():.1f}, {np.median(errors):.1f}, {errors.max():.0f} %, {100 * math.expm1(logs.mean()):+.1f} %"
    held = [each.within[quantity] for each in some if quantity in each.within]
    return f"{text}, {100 * np.mean(held):.0f} %" if held else text


def table(
    title: str, some: Sequence[Compared], key: Callable[[Compared], str], quantities: Sequence[str] = ("time",)
) -> list[str]:
    """A table in Markdown with a row for each group of runs, and one for all."""
    lines = [f"| {title} | runs | {' | '.join(quantities)} |", "| --- | --- |" + " --- |" * len(quantities)]
    groups = {name: [each for each in some if key(each) == name] for name in sorted(set(map(key, some)))}
    for name, mine in [*groups.items(), ("all", some)]:
        lines.append(f"| {name} | {len(mine)} | {' | '.join(cell(mine, each) for each in quantities)} |")
    return [*lines, ""]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, without lines that begin with # and without suspect ones."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if not row.get("suspect")]


def kept(path: Path, make: Callable[[], Network]) -> Network:
    """A network that is in a file, or is made and put there: extracting takes longer than all the rest."""
    if path.is_file():
        return Network.load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    network = make()
    network.save(path)
    return network


def write(path: Path, title: str, made_by: str, lines: Iterable[str]) -> None:
    """Write a report as Markdown."""
    head = [f"# {title}", "", f"Made by `python benchmarks/{made_by}`; do not edit.", ""]
    path.write_text("\n".join([*head, *lines]).rstrip() + "\n", encoding="utf-8")
