"""The cache of pulled zoo entries: a place like all others (places.py), which only checked entries get into."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import ZooError
from ..operations.operation import MODES
from ..predictors.formats.numbers import refusing_damage
from ..system.limits import limited_memory
from ..system.resources import cache_folder, shipped
from .entry import load_any
from .files import MANIFEST, NAME, StoredEntry, put_in_place, read_plain, sha256_of
from .kinds import name_of
from .places import INDEX, FolderPlace, Row, fetch, index_of, open_source, put, remove

REGISTERED = "models/"
"""Beginning of the names of models of a registry in the cache."""

_MOST_MEMORY_BYTES = 8 << 30  # of loading an entry; the largest shipped one takes 0.4 GB


def _cache() -> FolderPlace:
    return FolderPlace(cache_folder() / "zoo")


def pulled_index() -> Path:
    """The list of pulled entries, a file that need not exist."""
    return _cache().folder / INDEX


def pulled() -> dict[str, Row]:
    """Names of pulled entries -> what was pulled under them; empty where nothing was.

    Raises ZooError: the index of the cache is damaged.
    """
    path = pulled_index()
    try:
        return index_of(_cache()) if path.exists() else {}
    except ZooError as error:
        raise ZooError(
            "the list of pulled entries is damaged", given=path, hint="delete the file, and pull the entries again"
        ) from error


def pulled_folder(name: str, listed: Mapping[str, Row] | None = None) -> Path | None:
    """Find the folder of the entry that was pulled under a name, and check its manifest; None if none was pulled.

    `listed` is what `pulled` returned, for callers that ask for many names. Raises ZooError: the folder is missing, or
    its manifest was changed.
    """
    row = (pulled() if listed is None else listed).get(name)
    if row is None:
        return None
    folder = _cache().folder / row.folder
    if sha256_of(read_plain(folder / MANIFEST)) != row.manifest_sha256:
        raise ZooError(
            "a pulled zoo entry was changed", given=str(folder), hint=f"`joulecast zoo pull {row.source} {name}`"
        )
    return folder


def ships(name: str) -> bool:
    """Whether an entry of this name ships with joulecast."""
    return NAME.fullmatch(name) is not None and (shipped("zoo") / name / MANIFEST).is_file()


def pull(where: str, name: str, *, replace: bool = False) -> Path:
    """Fetch an entry from a place, check it, and put it into the cache. Raises what `fetch` and `admit` raise."""
    return admit(fetch(open_source(where), name), name, where, replace=replace)


def admit(entry: StoredEntry, name: str, source: str, *, replace: bool = False) -> Path:
    """Check an entry from another place, and put it into the cache under a name.

    Raises ZooError: the entry is damaged, takes more memory than allowed, differs from its golden prediction, or is for
    another GPU or mode than its name says; or an entry of this name ships with joulecast; or the cache cannot be
    written.

    Args:
        replace: Whether it may take the name of an entry that ships with joulecast.
    """
    there, cache = pulled(), _cache()
    if ships(name) and not replace and name not in there:
        raise ZooError(
            "an entry of this name ships with joulecast",
            given=f"{name} from {source}",
            hint="with --replace this one takes the name, until `joulecast zoo remove`",
        )
    if not name.startswith(REGISTERED):
        # Predictors are found by name. A GPU's own may take each other's names, so that the best becomes the default.
        with refusing_damage(entry.where):
            own = name_of(entry)
        (room, mode), (own_room, own_mode) = _meaning(name), _meaning(own)
        if room != own_room or mode not in ("", own_mode):
            raise ZooError(
                "the name of this zoo entry does not agree with its GPU, mode or predictor",
                given=name,
                allowed=f"such as {own}",
                hint="it was pushed under a wrong name; ask its owner",
            )
    if entry.sha256 not in {row.manifest_sha256 for row in there.values()}:
        with cache.writing(), tempfile.TemporaryDirectory() as scratch, limited_memory(_MOST_MEMORY_BYTES):
            load_any(put_in_place(Path(scratch) / "entry", entry.files))
    return put(cache, name, entry, source)


def _meaning(name: str) -> tuple[str, str]:
    """The device and the mode that a name says, or the predictor of all modes; empty where it says neither."""
    room, _, rest = name.partition("/")
    mode = rest.rpartition("-")[2]
    return room, mode if mode in MODES else rest if ships(name) else ""


def forget(name: str) -> None:
    """Remove an entry from the cache. Raises ZooError: nothing was pulled under this name."""
    entries = pulled()
    if name not in entries:
        raise ZooError(
            "no entry was pulled under this name",
            given=name,
            allowed=", ".join(sorted(entries)) or "none was pulled",
            hint="entries that ship with joulecast cannot be removed",
        )
    remove(_cache(), name)
