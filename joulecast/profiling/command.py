"""The arguments of `joulecast collect`. They are parsed by argparse, so that collecting does not need typer."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import InputError
from .campaign import Campaign, load_campaign
from .session import describe, run

_DESCRIPTION = """Measure time and power of the operations in a campaign's networks. Can be stopped and resumed at any
time. The campaign is read from a TOML file and from the options, which override the file."""


def collect(arguments: Sequence[str], program: str = "joulecast collect") -> str:
    """Run the campaign that the arguments describe, and print its result in a few lines.

    Raises JoulecastError: the campaign cannot go on. Finished measurements are in the journal. Raises SystemExit: an
    argument is unknown, or --help was given.
    """
    a = _parser(program).parse_args(arguments)
    given = {name: value for name, value in vars(a).items() if value is not None}
    options = {field.name: given[field.name] for field in fields(Campaign) if field.name in given}
    if a.network:
        shaped = [{"model": name, "input_shapes": list(map(_shape, shapes))} for name, *shapes in a.network]
        options["network"] = shaped
    campaign = load_campaign(a.campaign, options)
    if a.dry_run:
        return describe(campaign, a.limit, a.part)
    if a.out is None:
        _parser(program).error("--out is needed: the folder for the journal and the dataset")
    how = {"limit": a.limit, "part": a.part, "resume": a.resume, "power": not a.no_power}
    return run(campaign, a.out, a.device, **how)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=_DESCRIPTION)
    for title, rows in tomllib.loads(files(__package__).joinpath("options.toml").read_text("utf-8")).items():
        name, _, about = title.partition(": ")
        group: Any = parser if name == "options" else parser.add_argument_group(name, about or None)
        for option, row in rows.items():
            if "type" in row:
                row["type"] = _TYPES[row["type"]]
            if row.get("action") == "either":
                row["action"] = argparse.BooleanOptionalAction
            if isinstance(row.get("metavar"), list):
                row["metavar"] = tuple(row["metavar"])
            group.add_argument(option, **row)
    return parser


def _shape(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError("this is not a shape", given=repr(text), allowed="such as 32,3,224,224") from error


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _part(text: str) -> tuple[int, int]:
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise argparse.ArgumentTypeError(f"{text} is not between 1/{parts} and {parts}/{parts}")
    return number, parts


def _clock(text: str) -> int | str:
    return text if text == "default" else int(text)


_TYPES: Mapping[str, Callable[[str], Any]] = {
    "path": Path, "positive": _positive, "integer": int, "number": float, "clock": _clock, "part": _part
}  # fmt: skip
