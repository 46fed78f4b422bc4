"""`joulecast collect`: measure operations on this machine."""

from __future__ import annotations

import typer


def collect(context: typer.Context) -> None:
    """Measure time and power of the operations in a campaign's networks on this machine; --help lists the options."""
    from ..profiling.command import collect as run

    typer.echo(run(context.args))
