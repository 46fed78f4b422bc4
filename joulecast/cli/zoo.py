"""`joulecast zoo`: list, show, pull, push, verify, remove and promote trained predictors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from ..errors import InputError, JoulecastError, ZooError
from ..progress import tracked
from .printing import table

if TYPE_CHECKING:
    from ..zoo.places.sources import Row


def list_entries(source: str | None = None, as_json: bool = False) -> None:
    """List the predictors on this machine (shipped or pulled), or those of another place."""
    from ..zoo.places.sources import index_of, open_source
    from ..zoo.store import pulled

    rows: list[tuple[str, Row | None, str]] = []
    if source is None:
        mine = pulled()
        rows = [(name, _pulled_row(row.sha256), f"pulled from {row.source}") for name, row in mine.items()]
        rows += [(name, row, "shipped") for name, row in index_of(open_source("package")).items() if name not in mine]
    else:
        rows = [(name, row, source) for name, row in index_of(open_source(source)).items()]
    rows.sort(key=lambda row: row[0])
    if as_json:
        listed = {
            name: {"source": origin, **({"sha256": row.sha256, "size_bytes": row.size_bytes} if row else {})}
            for name, row, origin in rows
        }
        typer.echo(json.dumps(listed, indent=1))
        return
    if not rows:
        typer.echo("the zoo is empty")
        return
    cells = [[name, f"{row.size_bytes / 1e6:.1f}" if row else "-", origin] for name, row, origin in rows]
    typer.echo(table(["entry", "MB", "source"], cells, frozenset({1})))


def _pulled_row(sha256: str) -> Row | None:
    from ..zoo.entries.files import MANIFEST, read_manifest, read_plain
    from ..zoo.places.sources import Row
    from ..zoo.store import object_folder

    path = object_folder(sha256) / MANIFEST
    if not path.is_file():  # `zoo verify` says so
        return None
    data = read_plain(path)
    return Row.of(read_manifest(data, str(path)), data)


def show_entry(name: str, as_json: bool = False) -> None:
    """Print the model card of a predictor; with --json, also its digests and versions."""
    from ..zoo.catalogue import entry_folder
    from ..zoo.entries.cards import load_card
    from ..zoo.entries.files import MANIFEST, read_plain, sha256_of, stored_files
    from ..zoo.rendering import markdown

    folder = entry_folder(name)
    card = load_card(folder)
    if as_json:
        manifest, _ = stored_files(folder)
        facts = {key: manifest.get(key) for key in ("format_version", "libraries", "files")}
        digest = sha256_of(read_plain(folder / MANIFEST))
        typer.echo(json.dumps({**card, "entry": {"manifest_sha256": digest, **facts}}, indent=1, sort_keys=True))
        return
    typer.echo(markdown(card))


def pull_entries(source: str, names: list[str] | None = None, replace: bool = False) -> None:
    """Download predictors into the cache, where their names find them from then on.

    The digests and sizes of each are checked, and its golden prediction is made again in a separate process.
    """
    from ..zoo.places.sources import index_of, open_source, pull
    from ..zoo.store import pulled, ships

    if source.startswith("models:"):
        from ..zoo.mlflow.registry import pull_model

        typer.echo(f"{pull_model(source, replace=replace)} from {source}")
        return
    for name in tracked(names or sorted(index_of(open_source(source))), "entries"):
        if not names and not replace and ships(name) and name not in pulled():
            typer.echo(f"{name}: ships with joulecast; use --replace to pull it all the same")
            continue
        typer.echo(f"{name}: {pull(source, name, replace=replace)}")


def push_entry(name: str, target: str, called: str | None = None, tracking_uri: str | None = None) -> None:
    """Copy a predictor to a folder or S3, or register it in MLflow as challenger (the first version as champion)."""
    from ..zoo.catalogue import entry_folder
    from ..zoo.entries.cards import load_card
    from ..zoo.places.sources import push

    folder = entry_folder(name)
    if target.startswith("models:"):
        from ..zoo.mlflow.registry import register

        if called or target.rstrip("/") != "models:":
            raise InputError(
                "a registered model is named after its GPU and mode", given=called or target, allowed="models:/"
            )
        registered = register(folder, tracking_uri)
        typer.echo(f"models:/{registered.name}/{registered.version}: {registered.said}")
        return
    called = called or load_card(folder)["name"]
    push(folder, called, target)
    typer.echo(f"{called}: {target}")


def verify_entries(names: list[str] | None = None) -> None:
    """Check every file and the golden prediction of predictors. The exit code is 5 if any is damaged."""
    from ..zoo import entries
    from ..zoo.catalogue import entry_folder
    from ..zoo.entries.entry import load_any
    from ..zoo.store import pulled, pulled_folder

    failed = 0
    for name in tracked(names or sorted({*entries(), *pulled()}), "entries"):
        try:
            # What is on this machine is checked, even if its registry cannot be reached.
            load_any(pulled_folder(name) or entry_folder(name))
            typer.echo(f"{name}: unchanged")
        except JoulecastError as error:
            failed += 1
            typer.echo(f"{name}: {error}", err=True)
    if failed:
        raise typer.Exit(ZooError.exit_code)


def remove_entry(name: str, source: str | None = None) -> None:
    """Remove a pulled predictor from the cache, or one from a folder or S3."""
    from ..zoo.places.sources import remove
    from ..zoo.store import forget

    forget(name) if source is None else remove(source, name)
    typer.echo(f"{name}: removed{'' if source is None else f' from {source}'}")


def promote_model(model: str, version: str | None = None, force: bool = False, tracking_uri: str | None = None) -> None:
    """Make the challenger champion if it is better, by more than chance explains, on data left out of training."""
    from ..zoo.mlflow.registry import promote

    verdict = promote(model, version, force=force, uri=tracking_uri)
    typer.echo(verdict.said)
    if not verdict.promoted:
        raise typer.Exit(1)
