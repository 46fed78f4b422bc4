"""The command line: one file per group of commands."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from .. import __version__
from ..errors import JoulecastError
from . import (
    account,
    best,
    best_generation,
    calibrate,
    catalogue,
    collect,
    datasets,
    explain,
    extract,
    generate,
    host,
    image,
    kernels,
    measure,
    predict,
    serve,
    sweep,
    train,
    zoo,
)
from .option_words import in_option_words

app = typer.Typer(
    name="joulecast",
    help="Predict time, power and energy of PyTorch models on GPUs, before anything runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("predict")(predict.predict)
app.command("best")(best.best)
app.command("generate")(generate.generate)
app.command("best-generation")(best_generation.best_generation)
app.command("image")(image.image)
app.command("sweep")(sweep.sweep)
app.command("explain")(explain.explain)
app.command("extract")(extract.extract)
app.command("collect", context_settings=collect.PASSED_ON)(collect.collect)
app.command("train")(train.train)
app.command("evaluate")(train.evaluate)
app.command("train-kernels")(kernels.train_kernels)
app.command("gpus")(catalogue.list_gpus)
app.command("host")(host.host)
app.command("calibrate")(calibrate.calibrate)
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

    A JoulecastError becomes one message on stderr and the exit code of its class, and so does what the system refuses:
    a file on a full disk, or more memory than there is. typer exits with 2 on a wrong option.
    """
    try:
        try:
            app(args=None if arguments is None else list(arguments))
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except JoulecastError as error:
        _fail(error)
    except BrokenPipeError:
        # The program that reads our output, such as head or less, has ended.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        _discard_output()
        where = "the output" if error.filename is None else str(error.filename)
        _fail(JoulecastError("a file cannot be read or written", given=where, hint=f"{error.strerror or error}"))
    except MemoryError:
        hint = "ask for less at once, or raise the limit on memory (ulimit -v)"
        _fail(JoulecastError("this takes more memory than this process may have", hint=hint))


def _fail(error: JoulecastError) -> NoReturn:
    sys.stderr.write(f"error: {in_option_words(str(error))}\n")
    sys.exit(error.exit_code)


def _discard_output() -> None:
    """Discard the rest of the output. Otherwise Python would write it at exit, and fail on a full disk again."""
    with contextlib.suppress(OSError):  # Standard output may not be a file.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
