"""What README and the tutorials promise to a stranger: their commands, run literally in a fresh clone and environment.

These tests take minutes, and need pip's index. Within this process the commands run in every run of the tests: those of
the tutorials in test_tutorials.py, and those of README here.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented import ROOT, TUTORIALS, assert_shows, blocks, first_steps, lines, run_line

README = (ROOT / "README.md").read_text(encoding="utf-8")
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
