"""`joulecast collect`: measure operations on this machine or a cluster."""

from __future__ import annotations

import typer


def collect(context: typer.Context) -> None:
    """Measure time and power of the operations in a campaign's networks, here or on a cluster; see --help."""
    from ..profiling.command import collect as run

    typer.echo(run(context.args))
