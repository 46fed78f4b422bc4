"""Where zoo entries come from and go to: a folder, a zip file, an HTTP(S) or S3 location; for MLflow see registry.py.

All of them have the same layout: `index.json`, which names the entries with the sha256 of their manifests, and one
folder per entry. A source is not trusted: names, sizes and digests are checked before a file is used.

Before a push replaces an entry, it copies the old files beside themselves, as `_old-FILE`, and deletes the copies once
the index names the new entry. A push that is killed in between leaves the entry that the index names readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from ...errors import InputError, UnknownNameError, ZooError, damaged_zoo, unknown_name
from ...system.resources import shipped
from ..entries.files import MANIFEST, json_bytes, parsed_json, read_manifest, sha256_of, stored_files
from ..store import NAME, admit

INDEX = "index.json"
INDEX_VERSION = 1
_OLD = "_old-"  # No file of an entry may begin like this.

_MOST_INDEX_BYTES = 8 << 20
_MOST_ENTRIES = 10_000
_MOST_TRIES = 20


class Source(Protocol):
    """A location of zoo entries. Paths are relative, with slashes."""

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Read a file; None where there is none. A file of more than `most_bytes` raises a ZooError."""

    def names(self) -> list[str]:
        """List the names of entries, for a place without an index."""

    def files(self, name: str) -> list[str]:
        """Names of the files of an entry, whether its manifest lists them or not."""

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files in this order. A place that cannot be written to raises a ZooError."""

    def delete(self, paths: list[str]) -> None:
        """Delete files. A place that cannot be written to raises a ZooError."""

    def changing(self) -> AbstractContextManager[None]:
        """A context manager in which no other process changes this place, as far as the place can ensure that."""


@dataclass(frozen=True)
class Row:
    """The row of an entry in an index."""

    sha256: str
    size_bytes: int
    predictor: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any], data: bytes) -> Self:
        """Make the row of an entry from its manifest and the manifest's bytes."""
        size = sum(fact["size_bytes"] for fact in manifest["files"].values())
        return cls(sha256_of(data), size, str(manifest.get("predictor", ""))[:80])


def open_source(where: str) -> Source:
    """Open the source at an address: a folder, a .zip file, http://, https:// or s3://.

    Raises InputError: the address has another form. Raises MissingDependencyError: the address is in S3, and boto3 is
    not installed.
    """
    scheme = where.split("://", 1)[0].lower() if "://" in where else ""
    try:
        urlsplit(where)
    except ValueError as error:  # such as http://[::1
        raise InputError(
            "this is not a valid address", given=f"{where}: {error}", allowed="such as https://host/zoo"
        ) from error
    if scheme in ("http", "https"):
        from .source_folder import HttpSource

        return HttpSource(where)
    if scheme == "s3":
        from .source_s3 import S3Source

        return S3Source(where)
    from .source_folder import FolderSource, ZipSource

    if scheme or where.startswith("models:"):
        raise InputError(
            "this is not the address of a zoo",
            given=where,
            allowed="a folder, a .zip file, https://, http://, s3://, or models:/NAME@ALIAS of an MLflow registry",
        )
    if where == "package":
        return FolderSource(shipped("zoo"))
    return ZipSource(Path(where)) if where.endswith(".zip") else FolderSource(Path(where))


def index_of(source: Source) -> dict[str, Row]:
    """List the entries of a source, from its index or, where it has none, by looking into its folders.

    Raises ZooError: the index is damaged.
    """
    data = source.read(INDEX, _MOST_INDEX_BYTES)
    if data is None:
        return _listed(source, None)
    value = parsed_json(data, "the index of this zoo")
    try:
        if value["format_version"] != INDEX_VERSION:
            raise ZooError(
                "the index of this zoo has another format",
                given=str(value["format_version"])[:40],
                allowed=INDEX_VERSION,
                hint="update joulecast",
            )
        rows = {
            name: Row(str(row["manifest_sha256"]), int(row["size_bytes"]), str(row["predictor"])[:80])
            for name, row in value["entries"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_zoo("the index of this zoo is damaged", f"{type(error).__name__}: {error}"[:200]) from error
    if len(rows) > _MOST_ENTRIES or not all(NAME.fullmatch(name) for name in rows):
        raise damaged_zoo(
            "the index of this zoo has an invalid name of an entry",
            ", ".join(name for name in rows if not NAME.fullmatch(name))[:100] or f"{len(rows)} entries",
            "names such as a30/forest-inference",
        )
    return rows


def _read(source: Source, name: str, file: str, sha256: str, most_bytes: int) -> bytes | None:
    """Read a file of an entry: the one in its place, or the copy from before a push, if only that has this digest."""
    data, problem = None, None
    try:
        data = source.read(f"{name}/{file}", most_bytes)
    except ZooError as error:  # It may have become larger than the old one.
        problem = error
    if data is not None and sha256_of(data) == sha256:
        return data
    old = source.read(f"{name}/{_OLD}{file}", most_bytes)
    if old is not None and sha256_of(old) == sha256:
        return old
    if problem is not None:
        raise problem
    return data


def fetch(source: Source, name: str, sha256: str | None = None) -> dict[str, bytes]:
    """Fetch all files of an entry. Each is compared with the manifest, and the manifest with the index.

    Raises UnknownNameError: the source has no entry of this name. Raises ZooError: a file is missing or was changed.

    Args:
        sha256: Digest of its manifest; None for the one in the index.
    """
    if sha256 is None:
        index = index_of(source)
        if name not in index:
            raise unknown_name("zoo entry there", name, index, hint="`joulecast zoo list SOURCE` lists all")
        sha256 = index[name].sha256
    data = _read(source, name, MANIFEST, sha256, _MOST_INDEX_BYTES)
    if data is None:
        raise damaged_zoo("this zoo lacks the manifest of an entry", name)
    if sha256_of(data) != sha256:
        raise ZooError(
            "the manifest of this zoo entry is not the one in the index",
            given=f"{name}: {sha256_of(data)}",
            allowed=sha256,
            hint="the entry was changed, or is being replaced at this moment; try again, or ask its owner",
        )
    files = {}
    for file, fact in read_manifest(data, name)["files"].items():
        content = _read(source, name, file, fact["sha256"], fact["size_bytes"])
        if content is None or sha256_of(content) != fact["sha256"]:
            problem = "is missing" if content is None else "was changed"
            raise ZooError(
                f"a file of this zoo entry {problem}", given=f"{name}/{file}", hint="pull it again, or ask its owner"
            )
        files[file] = content
    return {**files, MANIFEST: data}


def pull(where: str, name: str, *, replace: bool = False) -> Path:
    """Copy an entry into the cache. From then on `predictor=NAME` finds it before a shipped entry of that name.

    Returns its folder in the cache. Raises InputError, UnknownNameError: no such place or entry. Raises ZooError: the
    entry is damaged or not valid, or its name ships with joulecast.

    Args:
        where: Address, as for `open_source`. Models of a registry are pulled by `registry.pull_model`.
        replace: Whether it may stand for a name that ships with joulecast.
    """
    return admit(fetch(open_source(where), name), name, where, replace=replace)


def push(folder: Path, name: str, where: str) -> None:
    """Copy an entry to a folder or an S3 location. The index is written last.

    Raises InputError: there is no such place, or the name is not valid. Raises ZooError: the entry is damaged, or the
    place cannot be written to.
    """
    if not NAME.fullmatch(name):
        raise InputError("this is not a valid name of an entry", given=name, allowed="such as a30/forest-inference")
    source = open_source(where)
    source.write({})  # creates a missing folder, and fails early where the place is read only
    _, files = stored_files(folder)
    data = (folder / MANIFEST).read_bytes()
    with source.changing():
        # A push that was killed while it deleted has left files that no manifest lists.
        there = source.files(name)
        old: dict[str, bytes] = {}
        with suppress(ZooError, UnknownNameError):  # There is none, or none that can be read.
            old = fetch(source, name)
        copies = {f"{_OLD}{file}": content for file, content in old.items()} if old.get(MANIFEST) != data else {}
        # The manifest follows the files that it lists, and the index follows the manifest. So a reader finds the old
        # entry until the index names the new one.
        source.write({f"{name}/{file}": content for file, content in {**copies, **files, MANIFEST: data}.items()})
        _write_index(source)
        source.delete([f"{name}/{file}" for file in dict.fromkeys([*copies, *there]) if file not in {*files, MANIFEST}])


def remove(where: str, name: str) -> None:
    """Remove an entry from a folder or an S3 location, first from its index.

    Raises UnknownNameError: the place has no entry of this name. Raises ZooError: the place cannot be written to.
    """
    source = open_source(where)
    with source.changing():
        index = index_of(source)
        if name not in index:
            raise unknown_name("zoo entry there", name, index)
        _write_index(source, without=name)
        # The manifest goes first: without it, the rest of a killed removal is no entry.
        source.delete([f"{name}/{file}" for file in sorted(source.files(name), key=lambda file: file != MANIFEST)])
        _write_index(source)


def _write_index(source: Source, without: str | None = None) -> None:
    """Write the index of the entries that are there, until nobody has added or removed one in the meantime.

    Two processes that push at a time may each list the entries before the other's manifest is there. Whoever writes
    last lists them again afterwards, and so finds what is missing. Where a place can be locked, this ends at once.
    """
    for _ in range(_MOST_TRIES):
        index = _listed(source, without)
        source.write({INDEX: index_bytes(index)})
        if _listed(source, without) == index:
            return
    raise ZooError(
        "this zoo changes faster than its index can be written", given=f"{_MOST_TRIES} tries", hint="push again later"
    )


def _listed(source: Source, without: str | None) -> dict[str, Row]:
    """The rows of the entries that a source has, from their manifests; one that is being removed has none."""
    names = [name for name in source.names()[:_MOST_ENTRIES] if NAME.fullmatch(name) and name != without]
    manifests = {name: source.read(f"{name}/{MANIFEST}", _MOST_INDEX_BYTES) for name in names}
    return {name: Row.of(read_manifest(data, name), data) for name, data in manifests.items() if data is not None}


def index_bytes(index: Mapping[str, Row]) -> bytes:
    """An index as JSON."""
    rows: dict[str, Any] = {
        name: {"manifest_sha256": row.sha256, "size_bytes": row.size_bytes, "predictor": row.predictor}
        for name, row in index.items()
    }
    return json_bytes({"format_version": INDEX_VERSION, "entries": rows})
