"""The page of the five sources: form, commands and counts. `python tests/test_docs_sources.py` counts again."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

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


def test_numbers_of_rows_follow_each_other() -> None:
    text = PAGE.read_text("utf-8")
    for letter, _ in DOCUMENT.findall(text):
        numbers = [int(name[1:]) for name, _ in rows(text) if name[0] == letter]
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


def _ours(setting: str, quantity: str) -> str:
    """Where a campaign of Nicolai's has our R2 of a quantity on the same rows."""
    return rf"\| {setting} \| [^|]+\| {quantity} \| random forest \|[^|]+\|[^|]+\| ([\d.]+) "


def _level(row: str, column: int) -> str:
    """Where Delestrac's section has a share of a product or of ResNet-50 at 1,065 MHz, which stands first."""
    return rf"(?m:^ *{row}) +" + r"[\d.]+ % +" * column + r"([\d.]+) %"


REPORTED = {
    "N11": [_ours("A30 training", "time"), _ours("A30 training", "power")],
    "N12": [_ours("A30 inference", "time"), _ours("A30 inference", "power")],
    "N13": [_ours("2080 Ti training", "time"), _ours("2080 Ti training", "power")],
    "N14": [_ours("2080 Ti inference", "time"), _ours("2080 Ti inference", "power")],
    "N20": [r"summed 7\.8%, ours ([\d.]+)%"],
    "N21": [r"summed 8\.1%, ours ([\d.]+)%"],
    "N22": [r"summed 42\.8%, ours ([\d.]+)%", r"summed 32\.2%, ours ([\d.]+)%"],
    "N23": [r"needs least for (\d+ of \d+);"],
    "N25": [r"energy: (\d+ of \d+) at 900 MHz"],
    "N26": [r"EDP: (\d+ of \d+) at 1200 MHz"],
    "N28": [r"in folds \| \d+ \|[^|]+\| ([\d.]+) %", r"by name \| \d+ \|[^|]+\| ([\d.]+) %"],
    "D2": [r"\| ours \| [\d,]+ \| \d+ \| [^|]+\| [^|]+\| ([\d.]+) "],
    "D3": [r"\| ours \| [\d,]+ \|(?:[^|]+\|){5} ([\d.]+) "],
    "D4": [r"one stack over the block \(B\): \+([\d.]+) "],
    "D6": [r"a standard encoder \(A\): -([\d.]+) "],
    "D8": [r"an LSTM: \+([\d.]+) \+-"],
    "S10": [r"ASSS: [^|]+\| ([\d.]+ to [\d.]+) "],
    "S11": [r"ASSW: [^|]+\| ([\d.]+ to [\d.]+) "],
    "S12": [r"overhead in time of the profiler \| (\+[\d.]+ % \([^)]+\))"],
    "S17": [r"albert_base +\S+ J +\S+ J +([\d.]+ J)", r"bert_base +\S+ J +\S+ J +([\d.]+ J)"],
    "S19": [rf"{stage} +([\d.]+ \w+)" for stage in ("pre-training", "fine-tuning, 3 epochs", "prediction")],
    "L10": [_level("product 512", 0), _level("product 4096", 0), _level("untiled 4096", 0)],
    "L11": [_level("product 512", 1), _level("product 4096", 1), _level("pJ at clock", 1), _level("pJ at clock", 2)],
    "L12": [_level("product 512", 3), _level("product 4096", 3)],
    "L13": [_level(f"ResNet-50 {precision}", 0) for precision in ("fp32", "TF32", "AMP")],
    "L14": [_level(f"ResNet-50 {precision}", 1) for precision in ("fp32", "TF32", "AMP")],
    "L15": [_level(f"ResNet-50 {precision}", 5) for precision in ("fp32", "TF32", "AMP")],
    "L16": [_level(f"ResNet-50 {precision}", 4) for precision in ("fp32", "TF32", "AMP")],
}
"""Row -> where its numbers stand in the report that `joulecast published` writes."""


@pytest.mark.parametrize("row", REPORTED)
def test_numbers_are_those_of_the_report(row: str) -> None:
    report = (ROOT / "benchmarks/published/REPORT.md").read_text(encoding="utf-8")
    cell = dict(rows(PAGE.read_text("utf-8")))[row][2]
    for where in REPORTED[row]:
        found = re.search(where, report)
        assert found is not None, where
        assert re.search(rf"(?<![\d.]){re.escape(found[1])}(?![\d.])", cell), (found[1], cell)


def test_findings_of_delestrac_are_those_of_the_report() -> None:
    """The table of docs/memory-levels.md has both settings."""
    report = (ROOT / "benchmarks/published/REPORT.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "memory-levels.md").read_text(encoding="utf-8")
    table = page[page.index("| finding of the paper") : page.index("`python examples/memory_levels.py")]
    for row in (row for row in REPORTED if row[0] == "L"):
        for where in REPORTED[row]:
            shares = re.findall(where, report)
            assert "untiled" in where or "pJ" in where or all(share in table for share in shares), (row, shares)


@pytest.mark.parametrize("recipe", ["random-forest", "xgboost"])
def test_errors_of_shipped_trees_are_those_of_their_cards(recipe: str) -> None:
    card = json.loads((ROOT / f"zoo/a30/{recipe}-inference/card.json").read_text("utf-8"))
    networks = card["network_errors"].values()
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
