"""Where the folders that travel with joulecast lie: in the installed package, or in a checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from .errors import ZooError, unknown_name

_PACKAGE = Path(__file__).resolve().parent


@lru_cache(maxsize=4)
def shipped(name: str) -> Path:
    """The folder `zoo`, `datasets`, `predictors` or `profiling` that came with this installation or checkout.

    Raises:
        ZooError: There is none.
    """
    checkout = _PACKAGE.parent
    # A checkout first: in an editable installation that is what its owner edits.
    for folder in (checkout / name if (checkout / "pyproject.toml").is_file() else None, _PACKAGE / "_shipped" / name):
        if folder is not None and folder.is_dir():
            return folder
    raise ZooError(f"this installation has no {name} folder", hint="install joulecast again")


def named_file(path: str | Path, folder: str, what: str) -> Path:
    """A TOML file of the user's, or one that came with joulecast and is called by its name: "blend".

    Args:
        path: Path of a file, or the name of a file of the folder without its ending.
        folder: Folder as in `shipped`.
        what: What the file is called in an error: "recipe".

    Raises:
        UnknownNameError: It is the name of no file that came with joulecast.
        ZooError: This installation has no such folder.
    """
    path = Path(path)
    if path.suffix or len(path.parts) != 1 or path.exists():
        return path
    found = shipped(folder) / f"{path}.toml"
    if not found.is_file():
        raise unknown_name(what, str(path), sorted(each.stem for each in shipped(folder).glob("*.toml")))
    return found
