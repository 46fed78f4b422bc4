"""Where a predictor comes from: the commit that it was trained at."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_commit() -> str:
    """The commit of the checkout that joulecast runs from, followed by "+" if files were changed; else "unknown"."""
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "pyproject.toml").is_file():
        return "unknown"
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "joulecast", "predictors")
    return f"{commit}{'+' if changed else ''}" if commit else "unknown"


def _git(folder: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
