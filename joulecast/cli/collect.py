"""`joulecast collect`: measure operations on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def collect(
    campaign: Annotated[Path, typer.Argument(help="A campaign, such as profiling/small.toml.")],
    out: Annotated[Path, typer.Option(help="Folder for the journal and the dataset.")],
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cuda",
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many operations.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the folder's journal ends.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and about how long it takes.")] = False,
    no_power: Annotated[bool, typer.Option("--no-power", help="Measure times only.")] = False,
) -> None:
    """Measure time and power of the operations of a campaign's networks; can be stopped and resumed at any time."""
    from ..profiling.session import describe, run

    if dry_run:
        typer.echo(describe(campaign, limit))
    else:
        typer.echo(run(campaign, out, device, limit=limit, resume=resume, power=not no_power))
