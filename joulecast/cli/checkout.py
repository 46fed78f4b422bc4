"""Commands that run scripts of the repository: they need sources, or papers, that a package does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from ..errors import InputError

_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def published(context: typer.Context) -> None:
    """Make the tables and figures of published work again, beside ours (benchmarks/published); see --help."""
    _run("published.py", context)


def study(context: typer.Context) -> None:
    """Compare variants of a model, measured or predicted: joules by phase, and module by module; see --help."""
    _run("variants.py", context)


def graph(context: typer.Context) -> None:
    """Draw the energy dependency graph of a model, predicted and measured, in GraphML, JSON or SVG; see --help."""
    _run("energy_graph.py", context)


def convert(context: typer.Context) -> None:
    """Make the tables that an importer reads from a clone of its source: SOURCE CLONE FOLDER; see --help."""
    _run("convert.py", context)


def _run(name: str, context: typer.Context) -> None:
    script = _BENCHMARKS / name
    if not script.is_file():
        raise InputError(
            f"`{context.command_path}` runs a script of the repository, which a package does not have",
            given=str(_BENCHMARKS),
            allowed="joulecast installed from its repository: pip install -e '.[dev]'",
            hint=f"clone the repository, and run `{context.command_path}` there",
        )
    ran = subprocess.run([sys.executable, str(script), *context.args], check=False)  # noqa: S603
    raise typer.Exit(ran.returncode)
