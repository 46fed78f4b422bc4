"""Models as arguments of commands: names of libraries' models, files, and classes in the user's own Python files."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError, unknown_name

ModelOptions = Annotated[
    list[str] | None,
    typer.Option("--model-option", help="An argument of the model, such as image_size=384; repeat it for several."),
]
Assumed = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        help="An assumption on values that depend on the input: experts=uniform, boxes=100 or box_side=200 (pixels); "
        "or the library of attention: attention=cudnn. Repeat it for several.",
    ),
]


def model_and_options(text: str, options: list[str] | None) -> tuple[Any, dict[str, Any] | None]:
    """Turn the arguments into a model for `joulecast.predict`, and the options that remain for it.

    "my_file.py:Net" runs the user's own file and calls its Net with the options. The service never does that.

    Raises:
        InputError: An option has no value; or the file cannot be run, has no such name, or the model cannot be built.
    """
    given = named_values(options, "an option of a model")
    found = re.fullmatch(r"(.+\.py):(\w+)", text)
    if found is None:
        return text, given or None
    path, name = Path(found[1]), found[2]
    if not path.is_file():
        raise InputError("this Python file cannot be read", given=str(path), hint="give FILE.py:NAME")
    try:
        content = vars(_run(path))
    except Exception as error:
        raise InputError(
            f"{path} cannot be run: {type(error).__name__}: {error}",
            given=text,
            hint=f"run python {path}, and mend what it reports",
        ) from error
    if name not in content:
        raise unknown_name(f"name in {path}", name, [each for each in content if not each.startswith("_")])
    made = content[name]
    if not callable(made) or (hasattr(made, "forward") and not isinstance(made, type)):
        return made, given or None
    try:
        return made(**given), None
    except Exception as error:
        raise InputError(
            f"{name} cannot be built: {type(error).__name__}: {error}",
            given=", ".join(options or ["no options"]),
            hint="--model-option NAME=VALUE gives it an argument",
        ) from error


def named_values(texts: list[str] | None, what: str) -> dict[str, Any]:
    """Parse texts of the form name=value. Numbers, lists and booleans are read as in Python, all else is a string.

    Raises:
        InputError: There is no name before an equals sign.
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"{what} is written as name=value", given=repr(text), allowed="NAME=VALUE")
        try:
            values[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            values[name] = value
    return values


def assumed(texts: list[str] | None) -> dict[str, Any] | None:
    """Parse the values of --assume for `joulecast.predict`.

    Raises:
        InputError: There is no name before an equals sign.
    """
    return named_values(texts, "an assumption") or None


def _run(path: Path) -> Any:
    """Run a Python file as a module. It can import the files beside it, as if it were run directly."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module
