"""The page of the five sources: form, commands and counts. `python tests/test_docs_sources.py` counts again."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import benchmark

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sources.md"
VERDICTS = ("works", "partly", "needs a GPU", "missing")
ROW = re.compile(r"^\| ([NDSEL]\d+) \| (.+) \|$", re.MULTILINE)
COUNTS = re.compile(r"(?<=<!-- counts -->\n).*?(?=<!-- end of counts -->)", re.DOTALL)
DOCUMENT = re.compile(r"^## ([NDSEL]): (.+)$", re.MULTILINE)


def rows(text: str) -> list[tuple[str, list[str]]]:
    """Id and cells of each row."""
    return [(name, [cell.strip() for cell in cells.split(" | ")]) for name, cells in ROW.findall(text)]


def counts(text: str) -> str:
    """The table of verdicts by document, as it stands in the head of the page."""
    found = Counter((name[0], cells[-1]) for name, cells in rows(text))
    lines = [f"| document | rows | {' | '.join(VERDICTS)} |", "| --- " * (2 + len(VERDICTS)) + "|"]
    for letter, document in [*DOCUMENT.findall(text), ("NDSEL", "all")]:
        of_each = [sum(found[each, verdict] for each in letter) for verdict in VERDICTS]
        lines.append(f"| {document} | {sum(of_each)} | {' | '.join(map(str, of_each))} |")
    return "\n".join(lines) + "\n"


def test_rows_have_the_form() -> None:
    found = rows(PAGE.read_text("utf-8"))
    assert len(found) == len({name for name, _ in found}) >= 96
    for name, cells in found:
        assert len(cells) == 5, name
        assert all(cells), name
        assert cells[-1] in VERDICTS, name
    for letter in {name[0] for name, _ in found}:
        numbers = [int(name[1:]) for name, _ in found if name[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


def test_counts_are_those_of_the_rows() -> None:
    text = PAGE.read_text("utf-8")
    written = COUNTS.search(text)
    assert written is not None
    assert written[0] == counts(text), "python tests/test_docs_sources.py counts again"


@pytest.mark.parametrize("row", rows(PAGE.read_text("utf-8")), ids=lambda row: row[0])
def test_commands_begin_with_what_exists(row: tuple[str, list[str]]) -> None:
    """Options of `joulecast` are checked with those of all other pages, in test_documentation.py."""
    from joulecast.cli import COMMANDS, GROUPS

    command = row[1][3]
    assert command.startswith("`")
    assert command.endswith("`")
    program, named, *_ = shlex.split(command.strip("`"))
    if program == "joulecast":
        assert named in (*COMMANDS, *GROUPS)
    else:
        assert program in ("python", "pytest")
        assert (ROOT / named).is_file()


with benchmark("published_rows") as published_rows:
    REPORT = (ROOT / "benchmarks/published/REPORT.md").read_text(encoding="utf-8")
    REPORTED = list(published_rows.cells_with_numbers(REPORT))


@pytest.mark.parametrize("reported", REPORTED, ids=lambda reported: f"{reported[1].strip('| ')} {reported[2]}")
def test_numbers_are_those_of_the_report(reported: Any) -> None:
    path, begins, cell, numbers = reported
    (row,) = [line for line in path.read_text("utf-8").splitlines() if line.startswith(begins)]
    assert published_rows.replaced(row.split("|")[cell], numbers, numbers)


@pytest.mark.parametrize("recipe", ["random-forest", "xgboost"])
def test_errors_of_shipped_trees_are_those_of_their_cards(recipe: str) -> None:
    card = json.loads((ROOT / f"zoo/a30/{recipe}-inference/card.json").read_text("utf-8"))
    networks = [case for case in card["networks"] if case["split"].startswith("networks by name")]
    means = [100 * sum(abs(each[name]) for each in networks) / len(networks) for name in ("time", "energy")]
    assert f"{means[0]:.1f} and {means[1]:.1f} %" in dict(rows(PAGE.read_text("utf-8")))["N18"][2]


def test_rows_of_the_catalogue_are_what_it_says() -> None:
    from joulecast.hardware import find_gpu
    from joulecast.predictors.physics.energy import static_power_w

    cells = dict(rows(PAGE.read_text("utf-8")))
    joules = find_gpu("A100 PCIe 40GB").access_energy_j
    assert joules is not None
    assert (
        cells["L1"][1] == ", ".join(f"{1e12 * joules[level]:.4g}" for level in ("shared", "l1", "l2", "dram")) + " pJ"
    )
    for board in ("A100 PCIe 80GB", "A100 PCIe 40GB"):
        watts = [static_power_w(find_gpu(board), clock_mhz) for clock_mhz in (1065, 1410)]
        assert f"{watts[0]:.0f} and {watts[1]:.0f} W" in cells["L9"][2]


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(COUNTS.sub(lambda _: counts(page), page), "utf-8")
