"""What README and the tutorials promise: Python blocks as one script, then shell lines through the command line.

The slow tests run them literally in a fresh clone and environment, as a stranger would. They need pip's index.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented import BLOCK, ROOT, TUTORIALS, assert_shows, blocks, first_steps, lines, run_line

README = (ROOT / "README.md").read_text(encoding="utf-8")

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
    """The code runs above as part of the tutorials; a slow test runs the notebooks in Jupyter."""
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


STEPS = ("tasks.py demo", "joulecast best", "joulecast measure", "joulecast train")


def stranger(home: Path) -> dict[str, str]:
    """The environment of somebody who has Python and pip's settings, and nothing of this project."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http", "HTTP"))}
    python = Path(sys.base_prefix) / "bin"
    return {**own, "HOME": str(home), "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def run(script: str, folder: Path) -> None:
    """Run a script of shell, which ends at the first line that fails."""
    result = subprocess.run(
        ["/bin/bash", "-e", "-c", script],
        cwd=folder, env=stranger(folder.parent), capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A clone of what is committed here."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a clone")
    subprocess.run([git, "clone", "--quiet", str(ROOT), str(tmp_path / "joulecast")], check=True)
    yield tmp_path / "joulecast"
    shutil.rmtree(tmp_path / "joulecast")  # an environment has gigabytes


@pytest.mark.slow
def test_a_stranger_follows_the_first_steps(clone: Path) -> None:
    steps = lines(first_steps((clone / "README.md").read_text(encoding="utf-8")))
    run("\n".join(steps), clone)
    assert list((clone / "my-zoo").rglob("card.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_stranger_follows_a_tutorial(clone: Path, path: Path) -> None:
    text = (clone / path.relative_to(ROOT)).read_text(encoding="utf-8")
    script = "\n".join(code for language, code in blocks(text) if language == "python")
    (clone / "tutorial.py").write_text(script, encoding="utf-8")
    install = [line for line in lines(text) if line.startswith("pip ")]
    rest = [line for line in lines(text) if line not in install]
    # The constraints save gigabytes of CUDA, as README says.
    install = [f"{line} --quiet --constraint constraints.txt" for line in install]
    begin = ["python3 -m venv .venv", ". .venv/bin/activate", *install]
    run("\n".join([*begin, "python tutorial.py", *rest]), clone)


@pytest.mark.slow
def test_a_wheel_predicts_where_there_is_no_checkout(clone: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    steps = ["python3 -m venv .venv", ". .venv/bin/activate", f"pip wheel --quiet --no-deps --wheel-dir . {clone}"]
    steps += ["pip install --quiet ./joulecast-*.whl", "joulecast predict resnet50 32,3,224,224 --gpu A30"]
    steps += ["joulecast best resnet50 32,3,224,224 --gpu A30,L4", "joulecast zoo verify", "joulecast collect --help"]
    run("\n".join(steps), elsewhere)


@pytest.mark.slow
def test_notebooks_run_in_jupyter(clone: Path) -> None:
    steps = ["python3 -m venv .venv", ". .venv/bin/activate"]
    steps += ["pip install --quiet --constraint constraints.txt '.[torch]' matplotlib pandas nbclient ipykernel"]
    steps += ["cd examples/notebooks", "jupyter execute *.ipynb"]
    run("\n".join(steps), clone)


def test_the_first_steps_of_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for line in lines(first_steps(README)):
        if "joulecast collect" in line:
            break  # what follows takes minutes
        run_line(line)
    assert "least energy" in capsys.readouterr().out
    assert all(any(part in line for line in lines(first_steps(README))) for part in STEPS)


def test_what_readme_and_the_first_pages_show_is_what_is_printed(printed) -> None:
    out = printed("predict", "resnet50", "32,3,224,224", "--gpu", "A30")
    for page in ("README.md", "docs/index.md"):
        assert_shows(ROOT / page, out)


def test_readme_is_short_and_begins_with_a_picture() -> None:
    assert len(README.split()) <= 900
    assert README.index("](docs/service-page.png)") < README.index("## First steps")
