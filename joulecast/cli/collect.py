"""`joulecast collect`: measure operations on this machine."""

from __future__ import annotations

import typer

# The arguments are read in profiling/command.py, so that collecting works where typer is not installed.
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def collect(context: typer.Context) -> None:
    """Measure time and power of the operations in a campaign's networks on this machine; --help lists the options."""
    from ..profiling.command import collect as run

    typer.echo(run(context.args))
