"""`joulecast collect`: measure operations on this machine."""

from __future__ import annotations

import typer

# Its arguments are read in profiling/command.py, so that collecting works where typer is not installed.
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def collect(context: typer.Context) -> None:
    """Measure time and power of the operations of a campaign's networks; --help lists the options."""
    from ..profiling.command import collect as run

    typer.echo(run(context.args))
