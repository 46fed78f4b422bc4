"""`joulecast check`: a model beside its baseline, in a repository and in the action for GitHub."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from joulecast import Network, Operation
from joulecast.errors import BudgetError

ROOT = Path(__file__).parents[2]


def git(*words):
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.check_output(["git", *named, *words], text=True, stderr=subprocess.STDOUT)  # noqa: S607


def write(width):
    """A network of one layer as a file in this folder."""
    layer = Operation("linear", [(512, 1024)], {"out_features": width, "bias": True})
    Path("net.json").write_text(json.dumps(Network.of([(layer, 1)]).to_dict()))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A commit of a network in a folder."""
    (tmp_path / "nets").mkdir()
    monkeypatch.chdir(tmp_path / "nets")
    write(1024)
    git("init", "--quiet")
    git("add", "-A")
    git("commit", "--quiet", "-m", "a network")


def test_a_commit_beside_the_files_that_are_there(call, printed, repository):
    write(2048)
    asked = ("check", "net.json", "--gpu", "A30", "--ref", "HEAD")
    code, out, err = call(*asked, "--budget", "energy=+5%")
    assert code == BudgetError.exit_code
    assert "over its budget" in err
    assert "| 1 x linear 512x1024 -> 512x2048 fp32 | - |" in out
    assert len(git("worktree", "list").splitlines()) == 1  # nothing is left behind
    write(1024)
    out = printed(*asked, "--budget", "energy=+0.1%", "--budget", "time=1s")
    assert out.count("+0.0 %") == 3  # nothing is known of the memory of a list


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing to check"),
        (("net.json", "--gpu", "A30", "--ref", "no-such-branch"), "git cannot give this baseline"),
        (("net.json", "--gpu", "A30", "--ref", "HEAD", "--against", "other.json"), "one baseline"),
        (("net.json", "--gpu", "A30", "--against=--help"), "nothing to check"),
        (("net.json", "--gpu", "A30", "--ref=-h"), "git cannot give this baseline"),
        (("net.json", "--gpu", "A30", "--ref", "HEAD\n--upload-pack=x"), "git cannot give this baseline"),
        ((str(Path(__file__).resolve()), "--gpu", "A30", "--ref", "HEAD"), "no file below this folder"),
        (("../net.json", "--gpu", "A30", "--ref", "HEAD"), "no file below this folder"),
        (("net.json", "--gpu", "A30", "--budget", "joules=3"), "unknown measure"),
        (("net.json", "--gpu", "A30", "--budget", "memory=8GB"), "memory of this prediction is not known"),
    ],
)
def test_what_cannot_be_checked(call, repository, words, says):
    code, _, err = call("check", *words)
    assert code == 2
    assert says in err


def test_the_action_fails_over_a_budget_and_writes_a_summary(repository, tmp_path):
    action = (ROOT / "action.yml").read_text(encoding="utf-8")
    script = textwrap.dedent(re.search(r"run: \|\n(.*)", action, re.DOTALL).group(1))
    write(4096)
    inputs = {"MODEL": "net.json", "GPU": "A30", "BUDGETS": "time=1s energy=+5%", "REF": "HEAD", "OPTIONS": ""}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    summary = tmp_path / "summary.md"
    environment = {**os.environ, **inputs, "PATH": path, "GITHUB_STEP_SUMMARY": str(summary)}
    done = subprocess.run(["bash", "-e", "-c", script], env=environment, capture_output=True, check=False)  # noqa: S607
    assert done.returncode == BudgetError.exit_code, done.stderr
    assert "over budget" in summary.read_text(encoding="utf-8")


def test_the_page_shows_what_is_printed(call):
    page = (ROOT / "docs" / "checking.md").read_text("utf-8")
    line = next(line for line in page.splitlines() if "--against" in line)
    code, out, _ = call(*line.split()[1:])
    shown = [row for row in page.splitlines() if row.startswith("|")]
    assert (code, len(shown)) == (15, 6)
    assert out.splitlines()[2:8] == shown
