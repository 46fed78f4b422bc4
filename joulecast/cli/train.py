"""`joulecast train`, `train-kernels` and `evaluate`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from ..system.cluster import on_cluster
from ..system.regular_files import unreadable
from .printing import table

if TYPE_CHECKING:
    from ..predictors.recipes import Recipe
    from .recipes import Entry, Loaded, RecipeHandler, Tracking


def train(
    dataset: list[Path],
    recipe: list[Path],
    mode: list[str] | None = None,
    training: bool = False,
    zoo: Path = Path("zoo"),
    tracking_uri: str | None = None,
    quick: bool = False,
    no_track: bool = False,
    register: bool = False,
    tune: int = 0,
    cluster: str | None = None,
) -> None:
    """Validate recipes on datasets, fit them on all data, and write zoo entries with model cards.

    A GPU's own predictors, and those of a CPU, are trained per dataset and mode. A predictor for any GPU is trained on
    all datasets together. Several recipes are compared in one table.
    """
    if register and no_track:
        raise InputError(
            "an entry must be tracked to be registered",
            given="--register --no-track",
            hint="leave out one of the two options",
        )
    from ..zoo.registry import register as register_entry
    from ..zoo.tracking import track
    from .recipes import handled

    settings = _load_recipes(recipe)
    loaded = _load(dataset)
    scores: dict[str, list[list[str]]] = {}
    modes = [*(mode or []), *(["training"] if training else [])]  # none stands for all
    with on_cluster(cluster):
        for name, one, handler, part in handled(settings, loaded):
            tracking = None if no_track else (tracking_uri, _command())
            for chosen, trained in _trained(handler, part, modes, one, quick, tune, tracking):
                entry = trained.save(zoo)
                own_scores = trained.validation.scores()
                typer.echo(f"{entry}\n{_table({name: own_scores}) if own_scores else _FEW}")
                scores.setdefault(name, []).extend(own_scores)
                if not no_track:
                    run = track(trained, chosen, entry, tracking_uri, command=_command())
                    typer.echo(f"MLflow run {run}")
                    if register:
                        registered = register_entry(entry, tracking_uri, run_id=run)
                        typer.echo(f"models:/{registered.name}/{registered.version}: {registered.said}")
    if len(settings) > 1:
        typer.echo(_table(scores))


def _trained(
    handler: RecipeHandler,
    loaded: Sequence[Loaded],
    modes: Sequence[str],
    recipe: Recipe,
    quick: bool,
    trials: int,
    tracking: Tracking | None,
) -> Iterator[tuple[Recipe, Entry]]:
    """Train entries, and return each with its settings: those of the recipe, or the best that a search found."""
    from .recipes import tune

    if not trials:
        yield from ((recipe, entry) for entry in handler.train(loaded, modes, recipe, quick))
        return
    for each, mode, best in tune(loaded, modes, recipe, trials, tracking):
        settings = ", ".join(f"{name} = {value:g}" for name, value in best.settings.items())
        typer.echo(f"{each.dataset.card.gpu}, {mode}: {settings}")
        yield from ((best.recipe, entry) for entry in handler.train([each], [mode], best.recipe, quick))


def evaluate(
    dataset: list[Path],
    recipe: list[Path],
    mode: list[str] | None = None,
    training: bool = False,
    out: Path = Path("benchmarks/report"),
    quick: bool = False,
    remarks: Path | None = None,
    tracking_uri: str | None = None,
    no_track: bool = False,
    cluster: str | None = None,
) -> None:
    """Measure the errors of recipes on data left out of their training, and write a report.

    Several recipes get a folder each, and a table compares them.
    """
    from .recipes import handled

    settings = _load_recipes(recipe)
    text = ""
    if remarks is not None:
        try:
            text = remarks.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable("this file cannot be read", remarks, error) from error
    loaded = _load(dataset)
    scores: dict[str, list[list[str]]] = {}
    modes = [*(mode or []), *(["training"] if training else [])]  # none stands for all
    for name, one, handler, part in handled(settings, loaded):
        with on_cluster(cluster):
            validations = handler.validate(part, modes, one, quick)
        scores.setdefault(name, []).extend(score for validation in validations for score in validation.scores())
        report = handler.report(validations, one, out / name if len(settings) > 1 else out, _command(), text)
        typer.echo(f"report: {report}")
        if not no_track:
            from ..zoo.tracking import track_evaluation
            from ..zoo.training import described

            used = [described(each.folder, each.dataset) for each in part]
            run = track_evaluation(name, validations, one, used, report, tracking_uri, command=_command())
            typer.echo(f"MLflow run {run}")
    typer.echo(_table(scores) if any(scores.values()) else _FEW)
    if len(settings) > 1:
        header, rows = _rows(scores)
        lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
        head = f"# Recipes side by side\n\nMade by `{_command()}`; do not edit. Absolute relative errors.\n\n"
        (out / "COMPARISON.md").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
        typer.echo(f"comparison: {out / 'COMPARISON.md'}")


_FEW = "too little was measured to validate"


def _load_recipes(paths: Sequence[Path]) -> dict[str, Recipe]:
    """Load recipes, by the names of their files."""
    from ..predictors.fitting.fit import load_recipe

    found: dict[str, Recipe] = {}
    for path in paths:
        if path.stem in found:
            raise InputError(
                "two recipes have the same name", given=", ".join(map(str, paths)), hint="rename one of the files"
            )
        found[path.stem] = load_recipe(path)
    return found


def _load(folders: Sequence[Path]) -> list[Loaded]:
    from ..datasets import load
    from .recipes import Loaded

    # Sorted, because the last bits of what is fitted on many datasets depend on their order.
    return [Loaded.of(folder, load(folder)) for folder in sorted(set(folders))]


def _rows(scores: dict[str, list[list[str]]]) -> tuple[list[str], list[list[str]]]:
    """One row per recipe and split; rows of the same split stand together."""
    from ..predictors.evaluation.errors import HEADER

    splits = dict.fromkeys(tuple(score[:2]) for found in scores.values() for score in found)
    rows = [
        [name, *score]
        for split in splits
        for name, found in scores.items()
        for score in found
        if tuple(score[:2]) == split
    ]
    return ["recipe", *HEADER], rows


def _table(scores: dict[str, list[list[str]]]) -> str:
    header, rows = _rows(scores)
    return table(header, rows, frozenset(range(3, len(header))))


def _command() -> str:
    return shlex.join(["joulecast", *sys.argv[1:]])


def train_kernels(
    dataset: list[Path], recipe: Path, zoo: Path = Path("zoo"), networks_only: bool = False, more: bool = False
) -> None:
    """Learn device times of kernels in half precision and below, and write the zoo entry that predictors use for them.

    Where datasets contain networks, it also learns how much longer kernels take inside networks. The zoo's predictor
    for any GPU predicts the rest of each network.

    Errors are measured on sizes, GPUs and generations that are left out. The entry itself is fitted on all data.
    """
    from ..datasets import load
    from ..predictors.recipes import load_kernel_recipe
    from ..zoo.catalogue import ANY_GPU, KERNELS_ENTRY
    from ..zoo.entry import load_entry
    from ..zoo.kernels_entry import load_kernels
    from ..zoo.kernels_training import learn_more, learn_networks
    from ..zoo.kernels_training import train_kernels as train
    from ..zoo.other_entries import AnyGpuEntry
    from ..zoo.training import renew_hosts
    from .recipes import Loaded, all_networks

    settings = load_kernel_recipe(recipe)
    loaded = [Loaded.of(folder, load(folder)) for folder in dataset]
    networks = all_networks(loaded)
    if networks_only and not networks:
        raise InputError(
            "no dataset holds a network",
            given=", ".join(map(str, dataset)),
            hint="add a dataset with whole networks, or leave out --networks-only",
        )
    if networks_only:
        renew_hosts(zoo / ANY_GPU, networks)
    base = load_entry(zoo / ANY_GPU, AnyGpuEntry) if networks else None
    data = [(each.folder, each.dataset) for each in loaded]
    if more:
        trained = learn_more(data, load_kernels(zoo / KERNELS_ENTRY), settings)
    elif networks_only and base is not None:
        trained = learn_networks(data, load_kernels(zoo / KERNELS_ENTRY), networks, base)
    else:
        trained = train(data, settings, networks, base)
    typer.echo(trained.save(zoo))
    cells = [
        [row["split"], row["where"], row["what"], str(row["count"]), *(_mean(row, name) for name in ("time", "power"))]
        for row in trained.card.errors
    ]
    header = ["left out", "where", "kernels", "count", "time: mean", "power: mean"]
    typer.echo(table(header, cells, frozenset({3, 4, 5})))


def _mean(row: Mapping[str, Any], quantity: str) -> str:
    return f"{100 * row[quantity]['mean']:.1f} %" if quantity in row else ""
