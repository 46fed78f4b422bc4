"""`joulecast host`: how fast this machine launches operations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .printing import table


def host(
    out: Annotated[Path | None, typer.Option(help="Write a profile for --host to this file.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda to launch operations on this machine's GPU.")] = "cpu",
    listed: Annotated[bool, typer.Option("--list", help="List the hosts that have a name.")] = False,
) -> None:
    """Measure how fast this machine launches PyTorch operations. Takes seconds and needs no GPU."""
    from ..hardware.host import USUAL, hosts, write_profile

    if listed:
        rows = [[known.name, f"{known.factor:g}", known.source] for known in (USUAL, *hosts().values())]
        typer.echo(table(["host", "factor", "source"], rows, frozenset({1})))
        return
    from ..profiling.devices import LAUNCH_S, find_device, measure_host

    machine = find_device(device)
    factor, facts = measure_host(machine)
    launch = f" and {1e6 * LAUNCH_S:g} us for a typical launch" if facts["launch_s"] else ""
    typer.echo(f"{facts['processor']}: {1e6 * facts['call_s']:.2f} us per call on the {facts['device']}{launch}")
    typer.echo(f"factor {factor:.2f}: launching takes {factor:.2f} times as long as on the reference host")
    if out is not None:
        write_profile(out, factor, facts)
        typer.echo(f"wrote {out}; use it with --host {out}")
