"""The command line: one file per group of commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from .. import __version__
from ..errors import JoulecastError
from . import (
    account,
    best,
    catalogue,
    collect,
    datasets,
    explain,
    extract,
    host,
    kernels,
    measure,
    predict,
    serve,
    sweep,
    train,
    zoo,
)

app = typer.Typer(
    name="joulecast",
    help="Predict time, power and energy of PyTorch models on GPUs, before anything runs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("predict")(predict.predict)
app.command("best")(best.best)
app.command("sweep")(sweep.sweep)
app.command("explain")(explain.explain)
app.command("extract")(extract.extract)
app.command("collect", context_settings=collect.PASSED_ON)(collect.collect)
app.command("train")(train.train)
app.command("evaluate")(train.evaluate)
app.command("train-kernels")(kernels.train_kernels)
app.command("gpus")(catalogue.list_gpus)
app.command("host")(host.host)
app.command("serve")(serve.serve)
app.add_typer(datasets.app, name="datasets")
app.add_typer(zoo.app, name="zoo")
app.add_typer(measure.app, name="measure")
app.add_typer(account.app, name="account")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"joulecast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Predict time, power and energy of PyTorch models on GPUs, before anything runs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code that tells success or the kind of error.

    A JoulecastError becomes one message on stderr and the exit code of its class. typer exits with 2 on a wrong option.
    """
    try:
        app(args=None if arguments is None else list(arguments))
    except JoulecastError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The program that reads our output, such as head or less, has ended.
        sys.stderr.close()
        sys.exit(0)
