"""Which commit made a prediction: what shows that it was made before its measurement."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit_of(path: Path | None = None, form: str = "%h") -> str:
    """The commit that a file was last changed by, as git's `--format` gives it; without a file, that of the predictors.

    Raises:
        SystemExit: The file, or what predicts, was changed since, so that no commit has it as it is.
    """
    of = ["joulecast", "zoo"] if path is None else [str(path)]
    found = _git("log", "-1", f"--format={form}", "--", *([] if path is None else of))
    if not found or _git("status", "--porcelain", "--untracked-files=no", "--", *of):
        raise SystemExit(f"commit {' and '.join(of)} first: a prediction is known by the commit that made it")
    return found


def versions_of(path: Path) -> Iterator[str]:
    """The text of a file in each commit that changed it, the oldest first."""
    name = path.resolve().relative_to(ROOT).as_posix()
    for commit in _git("log", "--reverse", "--format=%h", "--", name).split():
        yield _git("show", f"{commit}:{name}")


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", "-C", ROOT, *arguments], check=False, capture_output=True, text=True)  # noqa: S607
    return ran.stdout.strip()
