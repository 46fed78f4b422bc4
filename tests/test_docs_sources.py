"""The page of the five sources: form, commands and counts. `python tests/test_docs_sources.py` counts again."""

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


REPORTED = {
    "N20": r"summed 7\.8%, ours ([\d.]+)%",
    "N21": r"summed 8\.1%, ours ([\d.]+)%",
    "N22": r"summed 42\.8%, ours ([\d.]+)%(?s:.*)summed 32\.2%, ours ([\d.]+)%",
    "N23": r"needs least for (\d+ of \d+);",
    "N25": r"energy: (\d+ of \d+) at 900 MHz",
    "N26": r"EDP: (\d+ of \d+) at 1200 MHz",
    "N28": r"in folds \| \d+ \|[^|]+\| ([\d.]+) %(?s:.*?)by name \| \d+ \|[^|]+\| ([\d.]+) %",
    "D2": r"\| ours \| [\d,]+ \| \d+ \| [^|]+\| [^|]+\| ([\d.]+) ",
    "D8": r"an LSTM: \+([\d.]+) \+-",
}
"""Row -> where its numbers stand in the report that `joulecast published` writes."""


@pytest.mark.parametrize("row", REPORTED)
def test_numbers_are_those_of_the_report(row: str) -> None:
    found = re.search(REPORTED[row], (ROOT / "benchmarks/published/REPORT.md").read_text(encoding="utf-8"))
    cells = dict(rows(PAGE.read_text("utf-8")))[row]
    assert found is not None
    assert all(number in cells[2] for number in found.groups()), (found.groups(), cells[2])


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(COUNTS.sub(lambda _: counts(page), page), "utf-8")
