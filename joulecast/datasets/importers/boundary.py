"""The boundary of importers: whatever a damaged file makes them raise becomes an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, cast

from ...damage import refusing_damage
from ...errors import DatasetError
from ..measurement import Dataset

Options = ParamSpec("Options")
Folder = str | Path


Importer = Callable[Concatenate[Folder, Options], list[Dataset]]


def importer(read: Importer[Options]) -> Importer[Options]:
    """An importer that raises a DatasetError where a column or a cell is not what the source has there.

    Args:
        read: From the folder of a source's files to its datasets.
    """

    @wraps(read)
    def imported(folder: Folder, *args: Options.args, **options: Options.kwargs) -> list[Dataset]:
        with refusing_damage("these files are not those of the source, or damaged", Path(folder), DatasetError):
            return read(folder, *args, **options)

    return cast("Importer[Options]", imported)
