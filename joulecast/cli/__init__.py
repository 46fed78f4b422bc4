"""The command line: one file per group of commands."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import typer

from .. import __version__
from ..errors import InputError, JoulecastError
from .options import TABLES, command, in_option_words

COMMANDS: Mapping[str, str] = TABLES["commands"]
"""Command -> module here, and its function. A command of a group has the name of the group before its own."""

GROUPS: Mapping[str, str] = TABLES["command_groups"]
"""Group of commands -> its words in `--help`."""

_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}
_ELSEWHERE = {"context_settings": {**_EXTRA, "help_option_names": []}}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "collect": _ELSEWHERE,
    **{
        name: {**_ELSEWHERE, "help": TABLES["scripts"][name.rpartition(" ")[2]]["help"]}
        for name, place in COMMANDS.items()
        if place == "machine.script"
    },
    "check": {"context_settings": _EXTRA, "options_metavar": "MODEL [SHAPE]... [OPTIONS OF PREDICT] [OPTIONS]"},
    "measure run": {"context_settings": {"ignore_unknown_options": True}},
}
"""Commands whose further arguments are read elsewhere: in profiling/command.py, so that collecting works where typer is
not installed; by `joulecast predict`; and by scripts of the repository."""


class _Group(typer.core.TyperGroup):
    """A group in which `run` may be left out, as in `joulecast account MODEL` and `joulecast measure -- PROGRAM`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        runs = "--" in args if self.name == "measure" else args and args[0] != "--help"
        if self.name == "measure" and not runs and not ctx.resilient_parsing:
            self._refuse_program(args)
        if "run" in self.commands and runs and args[0] not in self.commands:
            args = ["run", *args]
        return list(super().parse_args(ctx, args))

    def _refuse_program(self, args: Sequence[str]) -> None:
        """Refuse a program that does not stand after "--", which is no command, or close to one."""
        if args and args[0] != "--help" and not difflib.get_close_matches(args[0], self.commands, n=1):
            raise InputError(
                "a program to measure stands after two dashes",
                given=" ".join(args)[:100],
                allowed=f"-- COMMAND, or one of {', '.join(self.commands)}",
                hint=f"joulecast measure -- {' '.join(args)[:100]}",
            )


def application(only: str | None = None) -> typer.Typer:
    """The command line. If only one command or group is needed, no other is imported."""
    app = typer.Typer(
        name="joulecast",
        help="Predict time, power and energy of PyTorch models on GPUs, before anything runs.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    groups = {
        name: typer.Typer(cls=_Group, help=words, short_help=words, no_args_is_help=True, rich_markup_mode=None)
        for name, words in GROUPS.items()
        if only in (None, name)
    }
    for name, place in COMMANDS.items():
        module, _, function = place.partition(".")
        group, _, own = name.rpartition(" ")
        if only in (None, group or name):
            run = command(name, getattr(import_module(f".{module}", __name__), function))
            settings = _SETTINGS.get(name, {})
            # Stated, because typer cuts what it takes from the help.
            said = str(settings.get("help") or run.__doc__).partition("\n")[0]
            groups.get(group, app).command(own, short_help=said, **settings)(run)
    for name, each in groups.items():
        app.add_typer(each, name=name)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"joulecast {__version__}")
        raise typer.Exit


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
            words = sys.argv[1:] if arguments is None else list(arguments)
            named = words[0] if words and words[0] in (*COMMANDS, *GROUPS) else None
            application(named)(args=words)
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except JoulecastError as error:
        _fail(error)
    except BrokenPipeError:
        # The program that reads our output, such as head or less, has ended.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        # What remains of the output is discarded, or Python would write it at exit, and fail on a full disk again.
        with contextlib.suppress(OSError):  # Standard output may not be a file.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = "the output" if error.filename is None else str(error.filename)
        _fail(
            JoulecastError(
                "a file cannot be read or written",
                given=f"{where}: {error.strerror or error}",
                hint="name a path that exists and that this user may use, on a disk with room",
            )
        )
    except MemoryError:
        hint = "ask for less at once, or raise the limit on memory (ulimit -v)"
        _fail(JoulecastError("this takes more memory than this process may have", hint=hint))


def _fail(error: JoulecastError) -> NoReturn:
    sys.stderr.write(f"error: {in_option_words(str(error))}\n")
    sys.exit(error.exit_code)
