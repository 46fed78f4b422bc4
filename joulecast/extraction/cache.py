"""Cache of extracted networks, so that a named model needs torch only once.

An entry is a JSON file. Its name depends on the request and on the versions of the libraries. It holds the network, the
operators that the model runs, and their digest. Entries that are outdated or cannot be read are extracted
again. If all entries together exceed a size limit, those that were least recently used are deleted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..operations.network import Network
from ..operations.operation import digest_of
from ..system.regular_files import is_file
from ..system.resources import cache_folder
from ..system.whole_files import whole_file
from .operators import FREE, OPERATORS, REVISIONS

TRACING_VERSION = 4
"""Increase it when a change in tracing gives other operations than before, independent of the table of operators."""


def digest(operators: Iterable[str]) -> str:
    """Sixteen hexadecimal digits that identify how extraction treats operators such as "aten.linear", in any order."""
    return digest_of(json.dumps([TRACING_VERSION, {each: _treatment(each) for each in sorted(set(operators))}]))


def _treatment(operator: str) -> str:
    """How an operator is treated: by which revision of its row, as free of cost, or as unknown."""
    namespace, _, name = operator.partition(".")
    row = name if namespace == "aten" else operator
    if row in OPERATORS or row in REVISIONS:
        return f"revision {REVISIONS.get(row, 1)}"
    return "free" if row in FREE else "unknown"


MOST_BYTES = 256 << 20
"""Largest size of the cache, which is enough for thousands of networks."""


@functools.cache
def library_version(package: str) -> str:
    """Version of an installed package, without the label of its build (+cpu); "none" if it is not installed."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "none"


def _path(name: str, key: list[Any]) -> Path:
    libraries = [library_version(package) for package in ("torch", "torchvision", "transformers", "timm")]
    identity = digest_of(json.dumps([name, key, libraries]))
    return cache_folder() / "networks" / f"{name.replace('/', '-')}-{identity}.json"


def recall(name: str, key: list[Any]) -> Network | None:
    """Look up the network of a named model; None if it is not in the cache.

    The key is everything else that determines the network, as JSON: inputs, mode, precision and more.
    """
    # The name becomes part of a path, so anything but letters, digits, "_", "/" and "." is refused.
    if not re.fullmatch(r"\w+(/\w+)?(\.\w+)?", name):
        return None
    path = _path(name, key)
    if not is_file(path):
        return None
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["digest"] != digest(entry["operators"]):
            return None
        network = Network.from_dict(entry["network"], name=name)
    except (InputError, KeyError, OSError, TypeError, ValueError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # marks the entry as recently used
    return network


def remember(network: Network, name: str, key: list[Any], operators: Collection[str]) -> None:
    """Store the network of a named model, and the operators that it ran, if the folder can be written."""
    path = _path(name, key)
    entry = {"operators": sorted(operators), "digest": digest(operators), "network": network.to_dict()}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as unfinished:
            unfinished.write_text(json.dumps(entry), encoding="utf-8")
        _make_room(path.parent)


def _make_room(folder: Path) -> None:
    """Delete the least recently used networks until the others are within the size limit."""
    with os.scandir(folder) as listed:
        by_use = sorted(((entry.stat(), entry.path) for entry in listed), key=lambda each: each[0].st_mtime_ns)
    size_bytes = sum(fact.st_size for fact, _ in by_use)
    for fact, path in by_use:
        if size_bytes <= MOST_BYTES:
            return
        Path(path).unlink(missing_ok=True)
        size_bytes -= fact.st_size
