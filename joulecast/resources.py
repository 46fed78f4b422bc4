"""Where the folders that travel with joulecast lie: in the installed package, or in a checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from .errors import ZooError

_PACKAGE = Path(__file__).resolve().parent


@lru_cache(maxsize=4)
def shipped(name: str) -> Path:
    """The folder `zoo` or `datasets` that came with this installation or checkout.

    Raises:
        ZooError: There is none.
    """
    checkout = _PACKAGE.parent
    # A checkout first: in an editable installation that is what its owner edits.
    for folder in (checkout / name if (checkout / "pyproject.toml").is_file() else None, _PACKAGE / "_shipped" / name):
        if folder is not None and folder.is_dir():
            return folder
    raise ZooError(f"this installation has no {name} folder", hint="install joulecast again")
