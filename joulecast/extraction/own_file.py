"""Models in Python files of users: FILE.py:NAME."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingDependencyError, unknown_name, with_extra
from ..system.regular_files import is_file


def own_model(text: str, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """Find what "my_file.py:Net" means: the file is run, and its Net called with the options.

    Any other text is returned as it is, because it is the name of a model. Returns the model, and the options that it
    was not built with; None for no options. Raises InputError: the file cannot be run, has no such name, or the model
    cannot be built.
    """
    file_and_name = re.fullmatch(r"(.+\.py)(?::(\w*))?", text)
    if file_and_name is None:
        return text, dict(given) or None
    path, name = Path(file_and_name[1]), file_and_name[2]
    if not is_file(path):
        raise InputError("there is no such Python file", given=str(path), hint="give the path of yours: FILE.py:NAME")
    try:
        content = _run(path)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise MissingDependencyError(
                "a model of your own needs torch", given=text, hint=with_extra("torch")
            ) from error
        raise InputError(
            f"{path} cannot be run: {type(error).__name__}: {error}",
            given=text,
            hint=f"run python {path}, and mend what it reports",
        ) from error
    if not name:
        # Classes that are written in this file, and objects that were made in it.
        found = {key: value for key, value in content.items() if hasattr(value, "forward")}
        models = [key for key, each in found.items() if not isinstance(each, type) or each.__module__ == path.stem]
        raise InputError(
            "a file may have several models: name one",
            given=text,
            allowed=", ".join(f"{path}:{model}" for model in models) or f"{path}:NAME of a torch.nn.Module",
        )
    if name not in content:
        raise unknown_name(f"name in {path}", name, [each for each in content if not each.startswith("_")])
    made = content[name]
    if not callable(made) or (hasattr(made, "forward") and not isinstance(made, type)):
        return made, dict(given) or None
    try:
        return made(**given), None
    except Exception as error:
        raise InputError(
            f"{name} cannot be built: {type(error).__name__}: {error}",
            given=", ".join(f"{option}={value}" for option, value in given.items()) or "no options",
            hint="--model-option NAME=VALUE gives it an argument",
        ) from error


def _run(path: Path) -> dict[str, Any]:
    """The names that a Python file defines. It can import the files beside it, as if it were run directly."""
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    finally:
        sys.path.pop(0)
