"""Converts any exception that a damaged file causes in an importer to an error of joulecast."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, cast

from ...errors import DatasetError
from ...system.damage import refusing_damage
from ..measurement import Dataset

Options = ParamSpec("Options")
Folder = str | Path


Importer = Callable[Concatenate[Folder, Options], list[Dataset]]


def importer(read: Importer[Options]) -> Importer[Options]:
    """Decorator of an importer: it raises a DatasetError if a column or a cell does not have the format of the source.

    Args:
        read: Function that reads datasets from the folder with the files of a source.
    """

    @wraps(read)
    def imported(folder: Folder, *args: Options.args, **options: Options.kwargs) -> list[Dataset]:
        with refusing_damage("these files are damaged, or are not those of the source", Path(folder), DatasetError):
            return read(folder, *args, **options)

    return cast("Importer[Options]", imported)
