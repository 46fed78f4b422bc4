"""`joulecast zoo`: list, show, pull, push, verify, remove and promote trained predictors."""

from __future__ import annotations

import json

import typer

from ..errors import InputError, JoulecastError, ZooError
from ..progress import tracked
from .printing import table


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

    verdict = promote(model, version, force=force, uri=tracking_uri)
    typer.echo(verdict.said)
    if not verdict.promoted:
        raise typer.Exit(1)
