"""Networks that were extracted before, so that a named model needs torch only once.

An entry is a JSON file named by everything that decides its content: model, shape, mode, precision, versions of
torchvision and of the extraction. What cannot be read is extracted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import InputError
from ..networks import Network
from ..rules import Shape

EXTRACTION_VERSION = 3
"""Raise it whenever the same model gives other operations than before."""


def cache_folder() -> Path:
    """$JOULECAST_CACHE, or joulecast in the user's cache folder."""
    if folder := os.environ.get("JOULECAST_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "joulecast"


def _path(name: str, shape: Shape, mode: str, precision: str) -> Path:
    try:
        library = version("torchvision")
    except PackageNotFoundError:
        library = "none"
    key = json.dumps([name, shape, mode, precision, library, EXTRACTION_VERSION])
    return cache_folder() / "networks" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def recall(name: str, shape: Shape, mode: str, precision: str) -> Network | None:
    """The network of a named model as it was extracted before, or None."""
    # A name goes into a path.
    if not name.isidentifier():
        return None
    path = _path(name, shape, mode, precision)
    if not path.is_file():
        return None
    try:
        return Network.load(path)
    except (InputError, KeyError, TypeError, ValueError):
        return None


def remember(network: Network, shape: Shape, mode: str, precision: str) -> None:
    """Keep the network of a named model; where the folder cannot be written, nothing is kept."""
    path = _path(network.name, shape, mode, precision)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(network.to_json(), file)
        Path(temporary).replace(path)
