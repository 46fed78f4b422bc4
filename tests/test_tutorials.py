"""The tutorials are run as they stand: Python blocks as one script, then shell lines through the command line."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from joulecast.cli import main

ROOT = Path(__file__).resolve().parents[1]
_MINUTES = "collect-train-serve"  # trains a forest
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
DATA = ROOT.parent / "shared" / "data" / "nicolai2025"
BLOCK = re.compile(r"(?:<!-- needs (?P<needs>[^>]+) -->\n)?```(?P<language>python|sh)\n(?P<code>.*?)```", re.DOTALL)


def blocks(path: Path) -> list[tuple[str, str]]:
    """Language and code of each block that can run here."""
    found = []
    for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
        if block["needs"] is None or (block["needs"] == "nicolai2025" and DATA.is_dir()):
            found.append((block["language"], block["code"]))
    return found


def run_line(line: str) -> None:
    """Run a line of shell, `joulecast` within this process."""
    words = shlex.split(line, comments=True)
    assert words[0] == "joulecast", line
    if "--" in words:  # it runs another program, which writes to a standard output of its own
        python = [sys.executable if word == "python" else word for word in words[1:]]
        subprocess.run([sys.executable, "-m", "joulecast.cli", *python], check=True, capture_output=True, timeout=120)
        return
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code, line


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if path.stem == _MINUTES else (), id=path.stem) for path in TUTORIALS],
)
def test_a_tutorial_runs_as_it_stands(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if DATA.is_dir():
        shutil.copytree(DATA, tmp_path / "nicolai2025")
    found = blocks(path)
    assert found
    script = tmp_path / f"{path.stem}.py"
    script.write_text("\n".join(code for language, code in found if language == "python"), encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")
    for language, code in found:
        for line in code.splitlines() if language == "sh" else ():
            run_line(line)


def test_what_cannot_run_here_says_what_it_needs() -> None:
    skipped = [block["needs"] for path in TUTORIALS for block in BLOCK.finditer(path.read_text()) if block["needs"]]
    assert set(skipped) <= {"a GPU", "nicolai2025", "a second version", "a server that goes on"}
