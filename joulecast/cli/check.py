"""`joulecast check`: what a change to a model costs, and whether that is within a budget."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ..errors import InputError


def check(context: typer.Context, ref: str = "", against: str = "", budget: list[str] | None = None) -> None:
    """Compare the predicted joules, time, power and memory of a model with a baseline, and fail over a budget.

    Model, shapes and all other options are those of `joulecast predict`, such as in `joulecast check net.py:Net
    8,3,224,224 --gpu A30 --ref origin/main --budget energy=+5%`. Prints a table in Markdown. The exit code is 15 if a
    budget is exceeded.
    """
    from ..queries.budgets import Budget, Review

    budgets = [Budget.of(text) for text in budget or []]
    words = context.args
    if not words or words[0].startswith("-") or against.startswith("-"):
        raise InputError(
            "there is nothing to check",
            given=" ".join([*words, *([against] if against else [])]) or "no model",
            allowed="a model, its shape, and the options of predict",
            hint="joulecast check net.py:Net 8,3,224,224 --gpu A30 --ref main --budget energy=+5%",
        )
    if ref and against:
        raise InputError("one baseline is enough", given=f"--ref {ref} --against {against}", hint="leave one out")
    before = _at_revision(ref, words) if ref else _predicted([against, *words[1:]]) if against else None
    review = Review(_predicted(words), before, budgets, (ref or against or "before", "now"))
    typer.echo(review.to_markdown())
    review.require()


def _at_revision(ref: str, words: Sequence[str]) -> dict[str, Any]:
    """The prediction with the files of a git revision, which are checked out beside.

    Raises InputError: there is no such revision.
    """
    file = Path(words[0].partition(":")[0])
    if file.is_absolute() or ".." in file.parts:  # It would be the same file at each revision.
        raise InputError(
            "the model is no file below this folder",
            given=words[0],
            allowed="a name, or the path of a file below this folder",
            hint="run joulecast check in the folder of the model",
        )
    prefix = _git(ref, "rev-parse", "--show-prefix")
    commit = _git(ref, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="joulecast-") as folder:
        tree = str(Path(folder) / "tree")
        _git(ref, "worktree", "add", "--detach", "--quiet", tree, commit)
        try:
            return _predicted(words, Path(tree) / prefix)
        finally:
            _git(ref, "worktree", "remove", "--force", tree)


def _git(ref: str, *words: str) -> str:
    command = ["git", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    except FileNotFoundError as error:
        raise InputError("a baseline of a revision needs git", given="no program git", hint="install git") from error
    if done.returncode:
        raise InputError(
            "git cannot give this baseline",
            given=ref,
            allowed="a revision of the repository in this folder",
            hint=f"fetch the revision first; git says: {done.stderr.strip()}",
        )
    return done.stdout.strip()


def _predicted(words: Sequence[str], folder: Path | None = None) -> dict[str, Any]:
    """What `joulecast predict` says, in a process of its own: both versions of a file have the same name.

    Raises InputError: it fails; its message is on stderr.
    """
    program = [sys.executable, "-P", "-c", "from joulecast.cli import main; main()", "predict", *words, "--json"]
    done = subprocess.run(program, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        place = "" if folder is None else " at this revision"
        raise InputError(
            f"the model cannot be predicted{place}; the reason is above",
            given=" ".join(words),
            allowed="what `joulecast predict` takes",
        )
    prediction: dict[str, Any] = json.loads(done.stdout)
    return prediction
