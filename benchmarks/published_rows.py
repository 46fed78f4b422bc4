"""Where rows of docs/sources.md and of docs/memory-levels.md have numbers of the published page.

When the page is made again, these rows follow it; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SOURCES, LEVELS = DOCS / "sources.md", DOCS / "memory-levels.md"


def _ours(setting: str) -> list[str]:
    """Where a campaign of Nicolai's has our R2 of time and of power on the same rows."""
    before = rf"\| {setting} \| [^|]+\| "
    return [before + rf"{quantity} \| random forest \|[^|]+\|[^|]+\| ([\d.]+) " for quantity in ("time", "power")]


def _shares(column: int, *rows: str) -> list[str]:
    """Where Delestrac's section has shares of products or of ResNet-50: at 1,065 MHz first, then at the boost clock."""
    return [rf"(?m:^ *{row}) +" + r"[\d.]+ % +" * column + r"([\d.]+) %" for row in rows]


_ENDS = ("product 512", "product 4096")
_RESNETS = tuple(f"ResNet-50 {precision}" for precision in ("fp32", "TF32", "AMP"))
ROWS: Mapping[str, Sequence[str]] = {
    "N11": _ours("A30 training"),
    "N12": _ours("A30 inference"),
    "N13": _ours("2080 Ti training"),
    "N14": _ours("2080 Ti inference"),
    "N20": [r"summed 7\.8%, ours ([\d.]+)%"],
    "N21": [r"summed 8\.1%, ours ([\d.]+)%"],
    "N22": [r"summed 42\.8%, ours ([\d.]+)%", r"summed 32\.2%, ours ([\d.]+)%"],
    "N23": [r"needs least for (\d+ of \d+);"],
    "N25": [r"energy: (\d+ of \d+) at 900 MHz"],
    "N26": [r"EDP: (\d+ of \d+) at 1200 MHz"],
    "N28": [r"in folds \| \d+ \|[^|]+\| ([\d.]+) %", r"by name \| \d+ \|[^|]+\| ([\d.]+) %"],
    "D2": [r"\| ours \| [\d,]+ \| \d+ \| [^|]+\| [^|]+\| ([\d.]+) "],
    "D3": [r"\| ours \| [\d,]+ \|(?:[^|]+\|){5} ([\d.]+) "],
    "D4": [r"one stack over the block \(B\): ([+-][\d.]+ \+- [\d.]+) points"],
    "D5": [r"no weighting by distance \(D\): ([+-][\d.]+ \+- [\d.]+) points"],
    "D6": [r"a standard encoder \(A\): ([+-][\d.]+ \+- [\d.]+) points"],
    "D8": [r"an LSTM: ([+-][\d.]+ \+- [\d.]+) points"],
    "S10": [r"ASSS: [^|]+\| ([\d.]+ to [\d.]+) "],
    "S11": [r"ASSW: [^|]+\| ([\d.]+ to [\d.]+) "],
    "S12": [r"overhead in time of the profiler \| (\+[\d.]+ % \([^)]+\))"],
    "S17": [r"albert_base +\S+ J +\S+ J +([\d.]+ J)", r"bert_base +\S+ J +\S+ J +([\d.]+ J)"],
    "S19": [rf"{stage} +([\d.]+ \w+)" for stage in ("pre-training", "fine-tuning, 3 epochs", "prediction")],
    "L10": _shares(0, *_ENDS, "untiled 4096"),
    "L11": [*_shares(1, *_ENDS, "untiled 4096", "pJ at clock"), *_shares(2, "pJ at clock")],
    "L12": _shares(3, *_ENDS),
    "L13": _shares(0, *_RESNETS),
    "L14": _shares(1, *_RESNETS),
    "L15": _shares(5, *_RESNETS),
    "L16": _shares(4, *_RESNETS),
}
"""Row of the five sources -> where the page has its numbers, in the order in which the row has them."""

FINDINGS: Mapping[str, Sequence[str]] = {
    "products: static over": _shares(0, *_ENDS),
    "products: moving data over": _shares(1, *_ENDS),
    "products: shared memory": _shares(3, *_ENDS),
    "products: moving data about": _shares(2, "product 4096"),
    "ResNet-50: static": _shares(0, *_RESNETS),
    "ResNet-50 in fp32": _shares(1, *_RESNETS[:2]),
    "ResNet-50 with AMP": _shares(1, "ResNet-50 AMP"),
    "ResNet-50: DRAM": _shares(5, *_RESNETS),
    "ResNet-50: L2": _shares(4, *_RESNETS),
}
"""First words of a finding of Delestrac's -> where the page has its numbers; the row has them at both clocks."""


def cells_with_numbers(report: str) -> Iterator[tuple[Path, str, int, list[str]]]:
    """Document, beginning of a row, number of a cell, and its numbers in a published page."""
    for row, places in ROWS.items():
        yield SOURCES, f"| {row} | ", 4, [re.findall(place, report)[0] for place in places]
    for finding, places in FINDINGS.items():
        for clock in range(2):
            yield LEVELS, f"| {finding}", 2 + clock, [re.findall(place, report)[clock] for place in places]


def replaced(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    """A text with numbers replaced, which it has in this order. Raises ValueError: it lacks one."""
    end = 0
    for before, after in zip(old, new, strict=True):
        found = re.compile(rf"(?<![\d.]){re.escape(before)}(?![\d.])").search(text, end)
        if found is None:
            raise ValueError(f"{before} is not where it was in: {text.strip()}")
        text, end = text[: found.start()] + after + text[found.end() :], found.start() + len(after)
    return text


def follow(old: str, new: str) -> None:
    """Give the rows of the documents the numbers of a page that was made again."""
    for (path, begins, cell, before), (*_, after) in zip(cells_with_numbers(old), cells_with_numbers(new), strict=True):
        lines = path.read_text(encoding="utf-8").split("\n")
        (place,) = [number for number, line in enumerate(lines) if line.startswith(begins)]
        cells = lines[place].split("|")
        try:
            cells[cell] = replaced(cells[cell], before, after)
        except ValueError as error:
            print(f"{path.name}, {begins.strip('| ')}: mend it by hand: {error}; now {', '.join(after)}")
        lines[place] = "|".join(cells)
        path.write_text("\n".join(lines), encoding="utf-8")
