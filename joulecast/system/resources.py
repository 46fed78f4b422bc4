"""Finds folders: those that come with joulecast, in the installed package or in a checkout, and the cache."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from ..errors import ZooError, unknown_name

_PACKAGE = Path(__file__).resolve().parents[1]


@lru_cache(maxsize=4)
def shipped(name: str) -> Path:
    """The folder `zoo`, `datasets`, `predictors` or `profiling` that came with this installation or checkout.

    Raises ZooError: there is no such folder.
    """
    checkout = _PACKAGE.parent
    # The checkout comes first, because its files are the ones to edit in an editable installation.
    for folder in (checkout / name if (checkout / "pyproject.toml").is_file() else None, _PACKAGE / "_shipped" / name):
        if folder is not None and folder.is_dir():
            return folder
    raise ZooError(f"this installation has no {name} folder", given=str(_PACKAGE), hint="install joulecast again")


def cache_folder() -> Path:
    """Folder of the cache: $JOULECAST_CACHE if it is set, or "joulecast" in the user's cache folder."""
    if folder := os.environ.get("JOULECAST_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "joulecast"


def named_file(path: str | Path, folder: str, what: str) -> Path:
    """The path of a TOML file of the user, or of one in a folder that came with joulecast, given by its name: "forest".

    `what` names such files in error messages: "recipe". Raises UnknownNameError: no file of this name came with
    joulecast.
    """
    path = Path(path)
    if path.suffix or len(path.parts) != 1 or path.exists():
        return path
    shipped_file = shipped(folder) / f"{path}.toml"
    if not shipped_file.is_file():
        raise unknown_name(what, str(path), sorted(each.stem for each in shipped(folder).glob("*.toml")))
    return shipped_file
