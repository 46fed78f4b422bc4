"""The tutorials are run as they stand: Python blocks as one script, then shell lines through the command line."""

import json
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


NOTEBOOKS = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))


def test_notebooks_hold_the_code_of_their_tutorials() -> None:
    """The code runs above as part of the tutorials; test_fresh_environments.py runs the notebooks in Jupyter."""
    folder = ROOT / "examples" / "notebooks"
    assert {path.stem for path in folder.glob("*.ipynb")} == {path.stem for path in NOTEBOOKS["tutorials"]()}
    for path in folder.glob("*.ipynb"):
        text = (ROOT / "docs" / "tutorials" / f"{path.stem}.md").read_text(encoding="utf-8")
        content = path.read_text(encoding="utf-8")
        hint = "python3 tasks.py notebooks makes it anew"
        assert content == NOTEBOOKS["notebook"](ROOT / "docs" / "tutorials" / f"{path.stem}.md"), hint
        cells = ["".join(cell["source"]) for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
        python = [cell for cell in cells if not cell.startswith("!")]
        assert python == [code.rstrip("\n") for language, code in blocks(text) if language == "python"]


def test_what_cannot_run_here_says_what_it_needs() -> None:
    skipped = [block["needs"] for path in TUTORIALS for block in BLOCK.finditer(path.read_text()) if block["needs"]]
    assert set(skipped) <= {"a GPU", "nicolai2025", "a second version", "a server that goes on"}
