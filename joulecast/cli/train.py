"""`joulecast train`, `train-kernels` and `evaluate`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from ..system.cluster import on_cluster
from ..system.regular_files import refusing_damage
from .printing import table

if TYPE_CHECKING:
    from ..predictors.recipes import Recipe
    from ..zoo.training import Loaded, Task, Trained

Scores = dict[str, list[list[str]]]
"""Name of a recipe -> rows by which it is compared with others."""


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
    from ..zoo.trainers import tasks_of, train_each

    recipes, loaded = _load(recipe, dataset)
    scores: Scores = {}
    modes = [*(mode or []), *(["training"] if training else [])]  # none stands for all
    with on_cluster(cluster):
        for name, asked in recipes.items():
            for tasks in tasks_of(asked, loaded, modes, quick):
                if tune:
                    trainings = _tuned(tasks, asked, tune, tracking_uri, track=not no_track)
                else:
                    trainings = ((asked, each) for each in train_each(tasks))
                for chosen, trained in trainings:
                    entry = trained.save(zoo)
                    own_scores = trained.validation.scores()
                    typer.echo(f"{entry}\n{_table({name: own_scores})}")
                    scores.setdefault(name, []).extend(own_scores)
                    if not no_track:
                        run = track(trained, chosen, entry, tracking_uri, command=_command())
                        typer.echo(f"MLflow run {run}")
                        if register:
                            registered = register_entry(entry, tracking_uri, run_id=run)
                            typer.echo(f"models:/{registered.name}/{registered.version}: {registered.said}")
    if len(recipes) > 1:
        typer.echo(_table(scores))


def _tuned(
    tasks: Sequence[Task], recipe: Recipe, trials: int, tracking_uri: str | None, *, track: bool
) -> Iterator[tuple[Recipe, Trained]]:
    """Search for better settings for each dataset and mode, and train with the best, which are returned as well.

    Raises InputError: the recipe has no search space. Raises TrackingError: the trials could not be logged.
    """
    from ..predictors.evaluation.one_gpu import search
    from ..predictors.fitting.forms import predictor_of
    from ..predictors.recipes import XGBoostRecipe
    from ..zoo.tracking import tuning
    from ..zoo.trainers import train_each

    if not isinstance(recipe, XGBoostRecipe) or not recipe.search:
        raise InputError(
            "this recipe has no search space",
            given=predictor_of(recipe),
            allowed="a recipe with [search]",
            hint="see predictors/xgboost.toml",
        )
    for task in tasks:
        (dataset,), mode = task.data, task.mode
        gpu, found = dataset.card.gpu, []
        tags = {"gpu": gpu, "mode": mode, "predictor": predictor_of(recipe)}
        logged = tuning(f"tune {gpu} {mode}", tags, tracking_uri, command=_command()) if track else nullcontext()
        with logged as log:
            for trial in search(dataset, mode, recipe, trials):
                found.append(trial)
                if log is not None:
                    log.trial(trial.settings, trial.metrics)
            best = min(found, key=lambda trial: trial.metrics["loss"])
            if log is not None:
                log.best(best.settings, best.metrics)
        typer.echo(f"{gpu}, {mode}: {', '.join(f'{name} = {value:g}' for name, value in best.settings.items())}")
        yield from ((best.recipe, trained) for trained in train_each([task._replace(recipe=best.recipe)]))


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
    from ..zoo.rendering import report
    from ..zoo.rendering import table as markdown_table
    from ..zoo.tracking import track_evaluation
    from ..zoo.trainers import tasks_of, trainer_of

    text = ""
    if remarks is not None:
        with refusing_damage("this file cannot be read", remarks):
            text = remarks.read_text(encoding="utf-8")
    recipes, loaded = _load(recipe, dataset)
    scores: Scores = {}
    modes = [*(mode or []), *(["training"] if training else [])]  # none stands for all
    for name, asked in recipes.items():
        for tasks in tasks_of(asked, loaded, modes, quick):
            trainer = trainer_of(tasks[0])
            with on_cluster(cluster):
                validations = [trainer.validate(task) for task in tasks]
            scores.setdefault(name, []).extend(score for validation in validations for score in validation.scores())
            file = (out / name if len(recipes) > 1 else out) / trainer.file
            file.parent.mkdir(parents=True, exist_ok=True)
            title = f"How good the {trainer.about} are"
            written = report(title, trainer.splits, asked, validations, command=_command(), remarks=text)
            file.write_text(written, encoding="utf-8")
            typer.echo(f"report: {file}")
            if not no_track:
                used = [
                    each.described() for each in {id(each): each for task in tasks for each in task.loaded}.values()
                ]
                run = track_evaluation(name, validations, asked, used, file, tracking_uri, command=_command())
                typer.echo(f"MLflow run {run}")
    typer.echo(_table(scores))
    if len(recipes) > 1:
        head = f"# Recipes side by side\n\nMade by `{_command()}`; do not edit. Absolute relative errors.\n\n"
        (out / "COMPARISON.md").write_text(head + "\n".join([*markdown_table(*_rows(scores)), ""]), encoding="utf-8")
        typer.echo(f"comparison: {out / 'COMPARISON.md'}")


def _load(paths: Sequence[Path], folders: Sequence[Path]) -> tuple[dict[str, Recipe], list[Loaded]]:
    """Recipes by the names of their files, and datasets."""
    from ..predictors.fitting.forms import load_recipe
    from ..zoo.training import Loaded

    if len({path.stem for path in paths}) < len(paths):
        raise InputError(
            "two recipes have the same name", given=", ".join(map(str, paths)), hint="rename one of the files"
        )
    recipes = {path.stem: load_recipe(path) for path in paths}
    # Sorted, because the last bits of what is fitted on many datasets depend on their order.
    return recipes, [Loaded.of(folder) for folder in sorted(set(folders))]


def _rows(scores: Scores) -> tuple[list[str], list[list[str]]]:
    """One row per recipe and split; rows of the same split stand together."""
    from ..predictors.evaluation.errors import HEADER

    rows = [[name, *score] for name, found in scores.items() for score in found]
    splits = [*dict.fromkeys(tuple(row[1:3]) for row in rows)]
    return ["recipe", *HEADER], sorted(rows, key=lambda row: splits.index(tuple(row[1:3])))


def _table(scores: Scores) -> str:
    if not any(scores.values()):
        return "too little was measured to validate"
    header, rows = _rows(scores)
    return table(header, rows, frozenset(range(3, len(header))))


def _command() -> str:
    return shlex.join(["joulecast", *sys.argv[1:]])


def train_kernels(dataset: list[Path], recipe: Path, zoo: Path = Path("zoo"), networks_only: bool = False) -> None:
    """Learn device times of kernels in half precision and below, and write the zoo entry that predictors use for them.

    Where datasets contain networks, it also learns how much longer kernels take inside networks. The zoo's predictor
    for any GPU predicts the rest of each network.

    Errors are measured on sizes, GPUs and generations that are left out. The entry itself is fitted on all data.
    """
    from ..predictors.model.shared import AnyGpuPredictor
    from ..predictors.recipes import load_kernel_recipe
    from ..zoo.catalogue import ANY_GPU, KERNELS_ENTRY
    from ..zoo.entry import Entry, load_entry
    from ..zoo.kernels_training import learn_networks
    from ..zoo.kernels_training import train_kernels as train
    from ..zoo.trainers import renew_hosts
    from ..zoo.training import Loaded, all_networks

    settings = load_kernel_recipe(recipe)
    loaded = [Loaded.of(folder) for folder in dataset]
    networks = all_networks(loaded)
    if networks_only and not networks:
        raise InputError(
            "no dataset holds a network",
            given=", ".join(map(str, dataset)),
            hint="add a dataset with whole networks, or leave out --networks-only",
        )
    if networks_only:
        renew_hosts(zoo / ANY_GPU, networks)
    base = load_entry(zoo / ANY_GPU, AnyGpuPredictor) if networks else None
    if networks_only and base is not None:
        trained = learn_networks(loaded, Entry.of(zoo / KERNELS_ENTRY), base)
    else:
        trained = train(loaded, settings, base)
    typer.echo(trained.save(zoo))
    cells = [
        [row["split"], row["where"], row["what"], str(row["count"]), *(_mean(row, name) for name in ("time", "power"))]
        for row in trained.card.errors
    ]
    header = ["left out", "where", "kernels", "count", "time: mean", "power: mean"]
    typer.echo(table(header, cells, frozenset({3, 4, 5})))


def _mean(row: Mapping[str, Any], quantity: str) -> str:
    return f"{100 * row[quantity]['mean']:.1f} %" if quantity in row else ""
