"""`joulecast datasets`: import and inspect measurements."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..datasets import Dataset

DATASETS = Path("build/datasets")


def import_source(source: str, folder: Path, out: Path = DATASETS, rows: int | None = None) -> None:
    """Convert published measurements into datasets: one per GPU or, where clocks were varied, one per GPU and clock."""
    from ..datasets import PUBLISHED, save
    from ..errors import InputError, named
    from ..progress import tracked

    published = named("source of measurements", source, PUBLISHED)
    if rows is not None and not published.thinned:
        raise InputError(
            f"{source} has few rows and is always imported completely",
            given=f"--rows {rows}",
            allowed=", ".join(name for name, each in PUBLISHED.items() if each.thinned),
            hint="omit --rows",
        )
    datasets = published.importer(folder, **({} if rows is None else {"rows": rows or None}))
    per_gpu = Counter(dataset.card.gpu for dataset in datasets)
    for dataset in tracked(datasets, "datasets to write"):
        path = out / _slug(dataset.card.gpu)
        written = save(dataset, path / _clock_name(dataset.card.clock_mhz) if per_gpu[dataset.card.gpu] > 1 else path)
        unusable = sum(not m.usable for m in dataset.measurements)
        without_power = sum(m.usable and not m.power_usable for m in dataset.measurements)
        typer.echo(
            f"{written}: {len(dataset.measurements)} measurements ({unusable} unusable, {without_power} without usable "
            f"power), {len(dataset.networks)} networks ({sum(not m.usable for m in dataset.networks)} unusable)"
        )


def sources() -> None:
    """List published measurements: what was measured, by whom, and where their files are."""
    from ..datasets import PUBLISHED

    for name, published in PUBLISHED.items():
        typer.echo(
            f"{name}: {published.measured}\n"
            f"  by {published.authors}\n"
            f"  at {published.address}; licence: {published.licence}\n"
            f"  imported from the tables {', '.join((*published.tables, *published.more_tables))}"
        )


def _slug(gpu: str) -> str:
    """Name of a GPU's folder, whether the catalogue has it or not: "Tesla P100-PCIE-16GB" gives "p100-pcie-16gb"."""
    from ..errors import UnknownNameError
    from ..hardware import find_device

    try:
        return find_device(gpu).slug
    except UnknownNameError:
        words = [word for word in gpu.lower().split() if word not in ("nvidia", "tesla", "geforce")]
        return "-".join(words)


def _clock_name(clock_mhz: float | None) -> str:
    return "default-clock" if clock_mhz is None else f"{clock_mhz:g}-mhz"


def from_journal(folder: Path) -> None:
    """Turn the journal of a campaign into a dataset in the same folder."""
    from ..profiling.session import finish

    typer.echo(finish(folder))


def show(folder: Path) -> None:
    """Verify a dataset and describe it."""
    from ..datasets import load

    dataset = load(folder)
    card = dataset.card
    typer.echo(f"{card.gpu}, {'default clock' if card.clock_mhz is None else f'{card.clock_mhz:g} MHz'}")
    typer.echo(
        f"source: {card.source}\nlicence: {card.licence}\n"
        f"measured: {' to '.join(filter(None, card.measured)) or 'unknown'}\nsensor: {card.sensor or 'unknown'}"
    )
    for mode in ("inference", "training"):
        usable = dataset.usable(mode)
        if not usable:
            continue
        unique = len({m.operation for m in usable})
        campaigns = len(dataset.campaigns(mode))
        typer.echo(f"{mode}: {len(usable)} usable measurements of {unique} operations in {campaigns} campaigns")
        without_device_time = sum(m.device_time_s is None for m in usable)
        if 0 < without_device_time < len(usable):
            typer.echo(f"  {without_device_time} without device time")
        for kind, count in Counter(m.operation.kind for m in usable).most_common():
            typer.echo(f"  {count:6d} {kind}")
    _show_networks(dataset)
    remarks = [m.remark for m in dataset.measurements] + [m.remark for m in dataset.networks]
    for remark, count in Counter(filter(None, remarks)).most_common():
        typer.echo(f"remark: {count} x {remark}")
    for name, text in card.method.items():
        typer.echo(f"method {name}: {text}")
    for limit in card.limits:
        typer.echo(f"limit: {limit}")


def _show_networks(dataset: Dataset) -> None:
    for mode in ("inference", "training"):
        networks = dataset.usable_networks(mode)
        if networks:
            typer.echo(f"{mode}: {len(networks)} usable measurements of networks")
        for (name, precision), count in Counter((m.network, m.precision) for m in networks).items():
            mine = [m for m in networks if (m.network, m.precision) == (name, precision)]
            clocks = [m.clock_mhz for m in mine if m.clock_mhz is not None]
            held = f", {min(clocks):.0f} to {max(clocks):.0f} MHz held" if clocks else ""
            listed = sum(m.operations is not None for m in mine)
            typer.echo(f"  {count:6d} {name}, {precision}{held}{f', {listed} with operations' if listed else ''}")
