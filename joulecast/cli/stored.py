"""What is stored: measurements (`joulecast datasets`) and trained predictors (`joulecast zoo`)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import InputError, JoulecastError, UnknownNameError, ZooError, named
from ..progress import tracked
from .printing import table

if TYPE_CHECKING:
    from ..datasets import Dataset

DATASETS = Path("build/datasets")


def import_source(source: str, folder: Path, out: Path = DATASETS, rows: int | None = None) -> None:
    """Convert published measurements into datasets: one per GPU or, where clocks were varied, one per GPU and clock."""
    from ..datasets import PUBLISHED, save
    from ..hardware import find_device

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
        gpu, clock_mhz = dataset.card.gpu, dataset.card.clock_mhz
        try:
            path = out / find_device(gpu).slug
        except UnknownNameError:  # "Tesla P100-PCIE-16GB" gives "p100-pcie-16gb".
            path = out / "-".join(each for each in gpu.lower().split() if each not in ("nvidia", "tesla", "geforce"))
        if per_gpu[gpu] > 1:
            path /= "default-clock" if clock_mhz is None else f"{clock_mhz:g}-mhz"
        written = save(dataset, path)
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


def list_entries(source: str | None = None, as_json: bool = False) -> None:
    """List the predictors on this machine (shipped or pulled), or those of another place."""
    from ..zoo.places import index_of, open_source
    from ..zoo.store import pulled

    if source is None:
        mine = pulled()
        rows = {name: (row, f"pulled from {row.source}") for name, row in mine.items()}
        rows |= {name: (row, "shipped") for name, row in index_of(open_source("package")).items() if name not in mine}
    else:
        rows = {name: (row, source) for name, row in index_of(open_source(source)).items()}
    if as_json:
        listed = {
            name: {"source": origin, "sha256": row.manifest_sha256, "size_bytes": row.size_bytes}
            for name, (row, origin) in sorted(rows.items())
        }
        typer.echo(json.dumps(listed, indent=1))
        return
    if not rows:
        typer.echo("the zoo is empty")
        return
    cells = [[name, f"{row.size_bytes / 1e6:.1f}", origin] for name, (row, origin) in sorted(rows.items())]
    typer.echo(table(["entry", "MB", "source"], cells, frozenset({1})))


def show_entry(name: str, as_json: bool = False) -> None:
    """Print the model card of a predictor; with --json, also its digests and versions."""
    from ..zoo.catalogue import entry_folder
    from ..zoo.files import StoredEntry
    from ..zoo.rendering import markdown

    entry = StoredEntry.of(entry_folder(name))
    if as_json:
        facts = {key: entry.manifest.get(key) for key in ("format_version", "libraries", "files")}
        whole = {**entry.card, "entry": {"manifest_sha256": entry.sha256, **facts}}
        typer.echo(json.dumps(whole, indent=1, sort_keys=True))
        return
    typer.echo(markdown(entry.card))


def pull_entries(source: str, names: list[str] | None = None, replace: bool = False) -> None:
    """Download predictors into the cache, where their names find them from then on.

    The digests and sizes of each are checked, and its golden prediction is made again.
    """
    from ..zoo.places import index_of, open_source
    from ..zoo.store import pull, pulled, ships

    if source.startswith("models:"):
        from ..zoo.registry import pull_model

        typer.echo(f"{pull_model(source, replace=replace)} from {source}")
        return
    for name in tracked(names or sorted(index_of(open_source(source))), "entries"):
        if not names and not replace and ships(name) and name not in pulled():
            typer.echo(f"{name}: ships with joulecast; use --replace to pull it all the same")
            continue
        typer.echo(f"{name}: {pull(source, name, replace=replace)}")


def push_entry(name: str, target: str, called: str | None = None, tracking_uri: str | None = None) -> None:
    """Copy a predictor to a folder, or register it in MLflow as challenger (the first version as champion)."""
    from ..zoo.catalogue import entry_folder
    from ..zoo.files import StoredEntry
    from ..zoo.places import push

    folder = entry_folder(name)
    if target.startswith("models:"):
        from ..zoo.registry import register

        if called or target.rstrip("/") != "models:":
            raise InputError(
                "a registered model is named after its GPU and mode", given=called or target, allowed="models:/"
            )
        registered = register(folder, tracking_uri)
        typer.echo(f"models:/{registered.name}/{registered.version}: {registered.said}")
        return
    called = called or StoredEntry.of(folder).card["name"]
    push(folder, called, target)
    typer.echo(f"{called}: {target}")


def verify_entries(names: list[str] | None = None) -> None:
    """Check every file and the golden prediction of predictors. The exit code is 5 if any is damaged."""
    from ..zoo import entries
    from ..zoo.catalogue import entry_folder
    from ..zoo.entry import load_any
    from ..zoo.store import pulled

    failed = 0
    for name in tracked(names or sorted({*entries(), *pulled()}), "entries"):
        try:
            load_any(entry_folder(name))
            typer.echo(f"{name}: unchanged")
        except JoulecastError as error:
            failed += 1
            typer.echo(f"{name}: {error}", err=True)
    if failed:
        raise typer.Exit(ZooError.exit_code)


def remove_entry(name: str, source: str | None = None) -> None:
    """Remove a pulled predictor from the cache, or one from a folder."""
    from ..zoo.places import remove, writable
    from ..zoo.store import forget

    forget(name) if source is None else remove(writable(source), name)
    typer.echo(f"{name}: removed{'' if source is None else f' from {source}'}")


def promote_model(model: str, version: str | None = None, force: bool = False, tracking_uri: str | None = None) -> None:
    """Make the challenger champion if it is better, by more than chance explains, on data left out of training."""
    from ..zoo.promotion import promote

    promoted, said = promote(model, version, force=force, uri=tracking_uri)
    typer.echo(said)
    if not promoted:
        raise typer.Exit(1)
