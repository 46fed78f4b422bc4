"""The tutorials are run as they stand: Python blocks as one script, then shell lines through the command line."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from documented import BLOCK, ROOT, TUTORIALS, blocks, lines, run_line

_MINUTES = "collect-train-serve"  # trains a forest
DATA = ROOT.parent / "shared" / "data" / "nicolai2025"
THERE = ("nicolai2025",) if DATA.is_dir() else ()


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if path.stem == _MINUTES else (), id=path.stem) for path in TUTORIALS],
)
def test_a_tutorial_runs_as_it_stands(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if DATA.is_dir():
        shutil.copytree(DATA, tmp_path / "nicolai2025")
    text = path.read_text(encoding="utf-8")
    script = tmp_path / f"{path.stem}.py"
    script.write_text("\n".join(code for language, code in blocks(text) if language == "python"), encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")
    commands = lines(text, THERE)
    assert script.read_text(encoding="utf-8") or commands
    for line in commands:
        run_line(line)


def test_what_cannot_run_here_says_what_it_needs() -> None:
    skipped = [block["needs"] for path in TUTORIALS for block in BLOCK.finditer(path.read_text()) if block["needs"]]
    assert set(skipped) <= {"a GPU", "nicolai2025", "a second version", "a server that goes on"}
