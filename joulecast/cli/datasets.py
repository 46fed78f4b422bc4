"""`joulecast datasets`: import and inspect measurements."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measurements: import, inspect, verify.", no_args_is_help=True, rich_markup_mode=None)


@app.command("import")
def import_source(
    source: Annotated[str, typer.Argument(help="Which source: nicolai2025.")],
    folder: Annotated[Path, typer.Argument(help="Where its files lie.")],
    out: Annotated[Path, typer.Option(help="Where to write one dataset per GPU.")] = Path("build/datasets"),
) -> None:
    """Read what others measured into datasets, one per GPU."""
    from ..datasets import IMPORTERS, save
    from ..errors import unknown_name
    from ..hardware import find_gpu

    if source not in IMPORTERS:
        raise unknown_name("source of measurements", source, IMPORTERS)
    for dataset in IMPORTERS[source](folder):
        written = save(dataset, out / find_gpu(dataset.card.gpu).slug)
        unusable = sum(not m.usable for m in dataset.measurements)
        without_power = sum(m.usable and not m.power_usable for m in dataset.measurements)
        typer.echo(
            f"{written}: {len(dataset.measurements)} measurements ({unusable} unusable, {without_power} without usable "
            f"power), {len(dataset.networks)} networks"
        )


@app.command("from-journal")
def from_journal(folder: Annotated[Path, typer.Argument(help="Folder with a campaign's journal.")]) -> None:
    """Turn the journal of a campaign into a dataset in the same folder."""
    from ..profiling.session import finish

    typer.echo(finish(folder))


@app.command("show")
def show(folder: Annotated[Path, typer.Argument(help="Folder of a dataset.")]) -> None:
    """Verify a dataset and describe it."""
    from ..datasets import load

    dataset = load(folder)
    card = dataset.card
    typer.echo(f"{card.gpu}, {'default clock' if card.clock_mhz is None else f'{card.clock_mhz:g} MHz'}")
    typer.echo(
        f"source: {card.source}\nlicence: {card.licence}\nmeasured: {' to '.join(card.measured)}\nsensor: {card.sensor}"
    )
    for mode in ("inference", "training"):
        usable = dataset.usable(mode)
        unique = len({m.operation for m in usable})
        campaigns = len(dataset.campaigns(mode))
        typer.echo(f"{mode}: {len(usable)} usable measurements of {unique} operations in {campaigns} campaigns")
        for kind, count in Counter(m.operation.kind for m in usable).most_common():
            typer.echo(f"  {count:6d} {kind}")
    for remark, count in Counter(m.remark for m in dataset.measurements if m.remark).most_common():
        typer.echo(f"remark: {count} x {remark}")
