"""Where zoo entries come from and go to: a folder, a zip file, an HTTP(S) or S3 location; for MLflow see registry.py.

All of them look alike: `index.json`, which names the entries with the sha256 of their manifests, and one
folder per entry. Nothing that a source says is believed: names, sizes and digests are checked before a file is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from ...errors import InputError, ZooError, unknown_name
from ...resources import shipped
from ..entries.files import MANIFEST, json_bytes, parsed_json, read_manifest, sha256_of, stored_files
from ..store import NAME, admit

INDEX = "index.json"
INDEX_VERSION = 1

_MOST_INDEX_BYTES = 8 << 20
_MOST_ENTRIES = 10_000


class Source(Protocol):
    """What each kind of location can do. Paths are relative, with slashes."""

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """The contents of a file, or None where there is none; ZooError for more than `most_bytes`."""
        ...

    def names(self) -> list[str]:
        """Names of the entries, where there is no index."""
        ...

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files, in their order; ZooError where that cannot be done."""
        ...

    def delete(self, paths: list[str]) -> None:
        """Delete files; ZooError where that cannot be done."""
        ...


@dataclass(frozen=True)
class Row:
    """What an index says of an entry."""

    sha256: str
    size_bytes: int
    predictor: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any], data: bytes) -> Self:
        """The row of a manifest, with the bytes that it was read from."""
        size = sum(fact["size_bytes"] for fact in manifest["files"].values())
        return cls(sha256_of(data), size, str(manifest.get("predictor", ""))[:80])


def open_source(where: str) -> Source:
    """The source that a text names: a folder, a .zip file, http://, https:// or s3://.

    Raises:
        InputError: It names none of these.
        MissingDependencyError: It is S3, and boto3 is not installed.
    """
    scheme = where.split("://", 1)[0].lower() if "://" in where else ""
    if scheme in ("http", "https"):
        from .source_http import HttpSource

        return HttpSource(where)
    if scheme == "s3":
        from .source_s3 import S3Source

        return S3Source(where)
    from .source_folder import FolderSource, ZipSource

    if scheme or where.startswith("models:"):
        raise InputError(
            "this is not a place for zoo entries",
            given=where,
            allowed="a folder, a .zip file, https://, http://, s3://, or models:/NAME@ALIAS of an MLflow registry",
        )
    if where == "package":
        return FolderSource(shipped("zoo"))
    return ZipSource(Path(where)) if where.endswith(".zip") else FolderSource(Path(where))


def index_of(source: Source) -> dict[str, Row]:
    """The entries of a source: from its index, or where it has none, by looking for them.

    Raises:
        ZooError: The index is damaged.
    """
    data = source.read(INDEX, _MOST_INDEX_BYTES)
    if data is None:
        return {name: _row(source, name) for name in source.names()[:_MOST_ENTRIES] if NAME.fullmatch(name)}
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
        raise ZooError("the index of this zoo is damaged", hint=f"{type(error).__name__}: {error}"[:200]) from error
    if len(rows) > _MOST_ENTRIES or not all(NAME.fullmatch(name) for name in rows):
        raise ZooError("the index of this zoo names what can be no entry", allowed="names such as a30/forest-inference")
    return rows


def _row(source: Source, name: str) -> Row:
    data = _manifest_bytes(source, name)
    return Row.of(read_manifest(data, name), data)


def _manifest_bytes(source: Source, name: str) -> bytes:
    data = source.read(f"{name}/{MANIFEST}", _MOST_INDEX_BYTES)
    if data is None:
        raise ZooError("this zoo lacks the manifest of an entry", given=name)
    return data


def fetch(source: Source, name: str, sha256: str | None = None) -> dict[str, bytes]:
    """All files of an entry, each compared with the manifest, and the manifest with the index.

    Args:
        source: The place that it is fetched from.
        name: Name of the entry, such as "a30/forest-inference".
        sha256: Digest of its manifest; None for the one in the index.

    Raises:
        UnknownNameError: There is none of this name.
        ZooError: Something is missing, or not what it was.
    """
    if sha256 is None:
        index = index_of(source)
        if name not in index:
            raise unknown_name("zoo entry there", name, index, hint="`joulecast zoo list SOURCE` lists all")
        sha256 = index[name].sha256
    data = _manifest_bytes(source, name)
    if sha256_of(data) != sha256:
        raise ZooError(
            "the manifest of this zoo entry is another than the index says",
            given=f"{name}: {sha256_of(data)}",
            allowed=sha256,
            hint="somebody changed it, or is just now replacing it: ask, or try again",
        )
    files = {}
    for file, fact in read_manifest(data, name)["files"].items():
        content = source.read(f"{name}/{file}", fact["size_bytes"])
        if content is None or sha256_of(content) != fact["sha256"]:
            problem = "is missing" if content is None else "was changed"
            raise ZooError(f"a file of this zoo entry {problem}", given=f"{name}/{file}", hint="pull again, or ask")
        files[file] = content
    return {**files, MANIFEST: data}


def pull(where: str, name: str, *, replace: bool = False) -> Path:
    """Bring an entry into the cache; afterwards `predictor=NAME` finds it before that of the package.

    Args:
        where: See `open_source`; a registry's models are brought by `registry.pull_model`.
        name: Name of the entry, such as "a30/forest-inference".
        replace: Whether it may stand for a name that ships with joulecast.

    Returns:
        Its folder in the cache.

    Raises:
        InputError, UnknownNameError: No such place or entry.
        ZooError: The entry is not what it must be.
    """
    return admit(fetch(open_source(where), name), name, where, replace=replace)


def push(folder: Path, name: str, where: str) -> None:
    """Bring an entry to a folder or an S3 location, the index last.

    Raises:
        InputError: No such place.
        ZooError: The entry is damaged, or the place cannot be written to.
    """
    if not NAME.fullmatch(name):
        raise InputError("this can be no name of an entry", given=name, allowed="such as a30/forest-inference")
    source = open_source(where)
    source.write({})  # makes a folder that is not there yet, and tells what is read only
    manifest, files = stored_files(folder)
    data = (folder / MANIFEST).read_bytes()
    with _changing(source) as index:
        # The manifest after what it lists, the index after the manifest: whoever reads in between finds the old one,
        # or is told that it is being replaced.
        source.write({f"{name}/{file}": content for file, content in files.items()} | {f"{name}/{MANIFEST}": data})
        index[name] = Row.of(manifest, data)


def remove(where: str, name: str) -> None:
    """Take an entry away from a folder or an S3 location, from the index first.

    Raises:
        UnknownNameError: There is none of this name.
        ZooError: The place cannot be written to.
    """
    source = open_source(where)
    with _changing(source) as index:
        if name not in index:
            raise unknown_name("zoo entry there", name, index)
        data = source.read(f"{name}/{MANIFEST}", _MOST_INDEX_BYTES)
        del index[name]
    files = [] if data is None else list(read_manifest(data, name)["files"])
    source.delete([f"{name}/{file}" for file in (MANIFEST, *files)])


@contextlib.contextmanager
def _changing(source: Source) -> Iterator[dict[str, Row]]:
    index = index_of(source)
    yield index
    source.write({INDEX: index_bytes(index)})


def index_bytes(index: Mapping[str, Row]) -> bytes:
    """An index as it is written."""
    rows: dict[str, Any] = {
        name: {"manifest_sha256": row.sha256, "size_bytes": row.size_bytes, "predictor": row.predictor}
        for name, row in index.items()
    }
    return json_bytes({"format_version": INDEX_VERSION, "entries": rows})
