"""`joulecast train` and `joulecast evaluate`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from .arguments import table

if TYPE_CHECKING:
    from ..datasets import Dataset, NetworkMeasurement
    from ..networks import Network
    from ..predictors.recipe import BoostingRecipe
    from ..predictors.validation import Validation

_Datasets = Annotated[list[Path], typer.Option("--dataset", help="Folder of a dataset; may be given several times.")]
_Recipe = Annotated[Path, typer.Option("--recipe", help="A recipe, such as predictors/forest.toml.")]
_Modes = Annotated[list[str] | None, typer.Option("--mode", help="inference or training; both if left out.")]


def train(
    dataset: _Datasets,
    recipe: _Recipe,
    mode: _Modes = None,
    zoo: Annotated[Path, typer.Option(help="Zoo folder to write the entries into.")] = Path("zoo"),
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow server or store; SQLite here if left out.")] = None,
    no_track: Annotated[bool, typer.Option("--no-track", help="Do not log to MLflow.")] = False,
) -> None:
    """Validate a recipe on datasets, fit it on everything, and write zoo entries with model cards.

    A forest is one predictor per GPU and mode; boosting makes one for any GPU out of all datasets together.
    """
    from ..datasets import load
    from ..predictors.recipe import BoostingRecipe, load_recipe
    from ..zoo.training import train as train_entry

    settings = load_recipe(recipe)
    if isinstance(settings, BoostingRecipe):
        _train_any_gpu(dataset, settings, zoo, None if no_track else (tracking_uri,))
        return
    for folder in dataset:
        data = load(folder)
        for one_mode in _modes(mode, data):
            networks = _networks(data, one_mode)
            trained = train_entry(data, folder, one_mode, settings, networks)
            entry = trained.save(zoo)
            typer.echo(f"{entry}: {len(trained.predictor.measured)} operations, composition {trained.card.composition}")
            typer.echo(_summary(trained.validation))
            if not no_track:
                from ..zoo.tracking import track

                run = track(trained, settings, entry, tracking_uri, command=_command())
                typer.echo(f"MLflow run {run}")


def _train_any_gpu(
    folders: list[Path], settings: BoostingRecipe, zoo: Path, tracking: tuple[str | None] | None
) -> None:
    from ..datasets import load
    from ..hardware import find_gpu
    from ..operations import MODES
    from ..zoo.any_gpu_training import train_any_gpu

    # In one order, whichever way they were named: the trees depend on it in their last bits.
    datasets = [(folder, load(folder)) for folder in sorted(set(folders))]
    networks = [
        (find_gpu(data.card.gpu), m, network)
        for _, data in datasets
        for mode in MODES
        for m, network in _networks(data, mode).items()
    ]
    trained = train_any_gpu(datasets, networks, settings)
    entry = trained.save(zoo)
    typer.echo(f"{entry}: {len(datasets)} datasets, {len(networks)} networks")
    if tracking is not None:
        from ..zoo.tracking import track_any_gpu

        typer.echo(f"MLflow run {track_any_gpu(trained, settings, entry, tracking[0], command=_command())}")


def evaluate(
    dataset: _Datasets,
    recipe: _Recipe,
    mode: _Modes = None,
    out: Annotated[Path, typer.Option(help="Folder for REPORT.md and its plots.")] = Path("benchmarks/report"),
    remarks: Annotated[Path | None, typer.Option(help="Markdown to put into the report.")] = None,
) -> None:
    """Measure how good a recipe is on what it has not seen, and write a report with plots."""
    from ..datasets import load
    from ..predictors.recipe import BoostingRecipe, load_recipe
    from ..predictors.report import write_report
    from ..predictors.validation import validate

    settings = load_recipe(recipe)
    if isinstance(settings, BoostingRecipe):
        raise InputError(
            "a predictor for any GPU is evaluated when it is trained", hint="its model card holds the report"
        )
    text = "" if remarks is None else _text(remarks)
    validations = []
    for folder in dataset:
        data = load(folder)
        for one_mode in _modes(mode, data):
            validation = validate(data, one_mode, settings, _networks(data, one_mode))
            typer.echo(f"{data.card.gpu}, {one_mode}")
            typer.echo(_summary(validation))
            validations.append(validation)
    report = write_report(validations, settings, out, command=_command(), remarks=text)
    typer.echo(f"report: {report}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("this file cannot be read", given=str(path), hint=str(error)) from error


def _modes(asked: list[str] | None, data: Dataset) -> list[str]:
    from ..errors import unknown_name
    from ..operations import MODES

    for mode in asked or ():
        if mode not in MODES:
            raise unknown_name("mode", mode, MODES)
    return [mode for mode in MODES if (mode in asked if asked else data.usable(mode))]


def _networks(data: Dataset, mode: str) -> dict[NetworkMeasurement, Network]:
    from ..profiling import network_of

    return {
        m: m.operations or network_of(m.network, m.input_shape, mode=m.mode, precision=m.precision)
        for m in data.usable_networks(mode)
    }


def _summary(validation: Validation) -> str:
    from ..predictors.validation import network_summary

    rows = []
    for errors in validation.operations:
        s = errors.summary()
        values = [f"{s['time_r2']:.3f}", *_percents(s["time_median"], s["time_mean"])]
        values += [f"{s['power_r2']:.3f}", *_percents(s["power_median"], s["power_mean"])]
        rows.append([errors.campaign, f"{s['unique_operations']:.0f}", *values])
    text = ""
    if rows:
        header = ["campaign", "unique", "time R2", "median", "mean", "power R2", "median", "mean"]
        text = table(header, rows, frozenset(range(1, 8)))
    if validation.networks:
        n = network_summary(validation.networks)
        time, energy = _percents(n["time_error_mean"], n["energy_error_mean"])
        sum_time, sum_energy = _percents(n["sum_time_error_mean"], n["sum_energy_error_mean"])
        text += (
            f"\n{len(validation.networks)} networks left out, mean absolute error: time {time}, energy {energy} "
            f"(plain sum: {sum_time}, {sum_energy})"
        )
    return text or "too little was measured to validate"


def _percents(*values: float) -> list[str]:
    return [f"{100 * value:.1f} %" for value in values]


def _command() -> str:
    return shlex.join(["joulecast", *sys.argv[1:]])
