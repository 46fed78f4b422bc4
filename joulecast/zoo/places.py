"""Zoo entries in a folder or behind a web server. The cache of pulled entries is such a folder, too.

All of them have the same layout: `index.json` says where the files of each entry are, and has the sha256 of its
manifest. A place is not trusted: names, sizes and digests are checked before a file is used. A folder of entries
without an index, such as `zoo/` of a checkout, is a place as well.

A push puts a folder where there is none, then changes the index in one step, and then deletes what was replaced. So a
push that is killed leaves the old entry or the new one. What no index names is deleted when its entry is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import quote, urlsplit

from ..errors import InputError, ZooError, damaged_zoo, unknown_name
from ..system.limits import fetch as fetch_url
from ..system.resources import shipped
from ..system.whole_files import locked, whole_file
from . import files

INDEX = "index.json"
TOKEN = "JOULECAST_ZOO_TOKEN"  # noqa: S105  # the name of a variable
_SECONDS = 300.0  # per file, of which the largest has 64 MB
_INDEX_VERSION = 2
_MOST_INDEX_BYTES = 8 << 20
_MOST_ENTRIES = 10_000


@dataclass(frozen=True)
class Row:
    """The row of an entry in an index.

    Args:
        folder: Where its files are, below the place.
        source: Where it was pulled from, for entries of the cache.
    """

    manifest_sha256: str
    size_bytes: int
    predictor: str
    folder: str
    source: str = ""

    @classmethod
    def of(cls, manifest: bytes, name: str, folder: str, source: str = "") -> Self:
        """Make the row of an entry from its manifest."""
        facts = files.read_manifest(manifest, name)
        size = sum(fact["size_bytes"] for fact in facts["files"].values())
        return cls(files.sha256_of(manifest), size, str(facts.get("predictor", ""))[:80], folder, source)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read the row of an index. Raises KeyError, TypeError, ValueError: it is none."""
        sha256, predictor, folder = (str(value[name]) for name in ("manifest_sha256", "predictor", "folder"))
        return cls(sha256, int(value["size_bytes"]), predictor[:80], folder, str(value.get("source", "")))


def _checked(path: str) -> PurePosixPath:
    """Check that a relative path stays within its folder. Raises ZooError: it leads out of it."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or "\\" in path or "\0" in path or ":" in path or {"..", "."} & set(path.split("/")):
        raise damaged_zoo("a path in a zoo leads out of it", repr(path)[:100])
    return pure


class FolderPlace:
    """Entries below a folder. Links in it are not followed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Read a file; None where there is none. Raises ZooError: it has more than `most_bytes`, or is not plain."""
        self._refuse_unless_there()
        file = self.folder
        for part in _checked(path).parts:
            file = file / part
            if file.is_symlink():
                raise ZooError(
                    "a path in a zoo is a link, which is not followed",
                    given=str(file),
                    hint="copy the file that it points to in its place",
                )
        return files.read_plain(file, most_bytes) if file.exists() else None

    def names(self) -> list[str]:
        """List the names of entries, for a folder without an index."""
        self._refuse_unless_there()
        found = self.folder.glob(f"*/*/{files.MANIFEST}")
        return sorted(path.parent.relative_to(self.folder).as_posix() for path in found)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of the system, such as a full disk, into an error that names the folder."""
        try:
            yield
        except OSError as error:
            raise ZooError(
                "this zoo cannot be written to",
                given=f"{self.where}: {error.strerror}",
                hint="make room there, or name a folder that this user may write to ($JOULECAST_CACHE for the cache)",
            ) from error

    def _refuse_unless_there(self) -> None:
        if not self.folder.is_dir():
            raise InputError(
                "there is no such folder", given=self.where, allowed="a folder (unzip an archive), or https://"
            )


class HttpPlace:
    """Entries below an address, which can be read but not written.

    If $JOULECAST_ZOO_TOKEN is set, it is sent as a bearer token.
    """

    def __init__(self, where: str) -> None:
        self.where = where.rstrip("/")

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Fetch a file; None where there is none. Raises ZooError: there is no answer within the limits."""
        url = f"{self.where}/{quote(str(_checked(path)))}"
        request = urllib.request.Request(url)  # noqa: S310  # the scheme was checked when the source was opened
        if token := os.environ.get(TOKEN):
            request.add_header("Authorization", f"Bearer {token}")
        try:
            status, data = fetch_url(request, seconds=_SECONDS, most_bytes=most_bytes, redirects=True)
        except (OSError, HTTPException, ValueError) as error:
            raise ZooError(
                "this zoo cannot be reached, or its answer is not valid",
                given=f"{url}: {error}",
                hint="check the address; entries that ship with joulecast, and those that were pulled, need no network",
            ) from error
        if status == 404:
            return None
        if status != 200:
            refused = status in (401, 403)
            raise ZooError(
                "this zoo denied access" if refused else "this zoo answered with an error",
                given=f"{url}: {status}",
                hint=f"set ${TOKEN} to a token with permission to read"
                if refused
                else "ask who runs it, or try again later",
            )
        return data

    def names(self) -> list[str]:
        """Refuse: without an index, entries behind HTTP cannot be listed. Raises ZooError: Always."""
        raise ZooError(
            "there is no zoo at this address",
            given=f"{self.where}/{INDEX}",
            hint="serve a folder that `joulecast zoo push` wrote",
        )


def open_source(where: str) -> FolderPlace | HttpPlace:
    """Open the place at an address: a folder, http:// or https://. Raises InputError: the address has another form."""
    scheme = where.split("://", 1)[0].lower() if "://" in where else ""
    try:
        urlsplit(where)
    except ValueError as error:  # such as http://[::1
        raise InputError(
            "this is not a valid address", given=f"{where}: {error}", allowed="such as https://host/zoo"
        ) from error
    if scheme in ("http", "https"):
        return HttpPlace(where)
    if scheme or where.startswith("models:"):
        raise InputError(
            "this is not the address of a zoo",
            given=where,
            allowed="a folder, https://, http://, or models:/NAME@ALIAS of an MLflow registry",
            hint="a program such as rclone or `aws s3 sync` copies a folder to other stores",
        )
    return FolderPlace(shipped("zoo") if where == "package" else Path(where))


def writable(where: str) -> FolderPlace:
    """Open a place to write to. Raises InputError: it is no folder."""
    place = open_source(where)
    if not isinstance(place, FolderPlace):
        hint = "push to a folder; a web server serves the files of such a folder"
        raise InputError("a zoo behind HTTP is read only", given=where, hint=hint)
    return place


def index_of(source: FolderPlace | HttpPlace) -> dict[str, Row]:
    """List the entries of a place, from its index or, where it has none, by looking into its folders.

    Raises ZooError: the index is damaged.
    """
    data = source.read(INDEX, _MOST_INDEX_BYTES)
    if data is None:
        names = [name for name in source.names()[:_MOST_ENTRIES] if files.NAME.fullmatch(name)]
        manifests = {name: source.read(f"{name}/{files.MANIFEST}", _MOST_INDEX_BYTES) for name in names}
        return {name: Row.of(data, name, name) for name, data in manifests.items() if data is not None}
    value = files.parsed_json(data, "the index of this zoo")
    try:
        if value["format_version"] != _INDEX_VERSION:
            raise ZooError(
                "the index of this zoo has another format",
                given=str(value["format_version"])[:40],
                allowed=_INDEX_VERSION,
                hint="update joulecast",
            )
        rows = {name: Row.from_dict(row) for name, row in value["entries"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_zoo("the index of this zoo is damaged", f"{type(error).__name__}: {error}"[:200]) from error
    if len(rows) > _MOST_ENTRIES or not all(files.NAME.fullmatch(name) for name in rows):
        raise damaged_zoo(
            "the index of this zoo has an invalid name of an entry",
            ", ".join(name for name in rows if not files.NAME.fullmatch(name))[:100] or f"{len(rows)} entries",
            "names such as a30/forest-inference",
        )
    return rows


def fetch(source: FolderPlace | HttpPlace, name: str) -> files.StoredEntry:
    """Fetch all files of an entry. Each is compared with the manifest, and the manifest with the index.

    Raises UnknownNameError: the place has no entry of this name. Raises ZooError: a file is missing or was changed.
    """
    index = index_of(source)
    if name not in index:
        raise unknown_name("zoo entry there", name, index, hint="`joulecast zoo list SOURCE` lists all")
    row = index[name]
    entry = files.StoredEntry.read(
        lambda file, most_bytes: source.read(f"{row.folder}/{file}", most_bytes), f"{source.where}/{row.folder}"
    )
    if entry.sha256 != row.manifest_sha256:
        raise ZooError(
            "the manifest of this zoo entry is not the one in the index",
            given=f"{name}: {entry.sha256}",
            allowed=row.manifest_sha256,
            hint="the entry was changed, or is being replaced at this moment; try again, or ask its owner",
        )
    return entry


def push(folder: Path, name: str, where: str) -> None:
    """Copy an entry into a folder, and list it in the index there.

    Raises InputError: the name is not valid, or the place is read only. Raises ZooError: the entry is damaged, or the
    place cannot be written to.
    """
    if not files.NAME.fullmatch(name):
        raise InputError("this is not a valid name of an entry", given=name, allowed="such as a30/forest-inference")
    put(writable(where), name, files.StoredEntry.of(folder))


def put(source: FolderPlace, name: str, entry: files.StoredEntry, pulled_from: str = "") -> Path:
    """Write an entry into a place, list it in the index, and return its folder there; see `push`."""
    row = Row.of(entry.files[files.MANIFEST], name, f"{name}/{entry.sha256[:16]}", pulled_from)
    with _index_changed(source) as rows:
        folder = files.put_in_place(source.folder / row.folder, entry.files)
        before = rows.get(name, row)
        rows[name] = row
    if before.folder != row.folder:
        with source.writing():
            # Without an index, the folder of the entry itself has the old files, beside the folder of the new ones.
            replaced = source.folder / _checked(before.folder)
            for file in [each for each in replaced.iterdir() if not each.is_dir()]:
                file.unlink()
            with contextlib.suppress(OSError):
                replaced.rmdir()
    return folder


def remove(source: FolderPlace, name: str) -> None:
    """Remove an entry from a place, first from its index.

    Raises UnknownNameError: the place has no entry of this name. Raises ZooError: the place cannot be written to.
    """
    with _index_changed(source) as rows:
        if name not in rows:
            raise unknown_name("zoo entry there", name, rows)
        del rows[name]
    folder = source.folder / _checked(name)
    with source.writing():
        if folder.exists():
            shutil.rmtree(folder)
        with contextlib.suppress(OSError):  # another entry lies beside it
            folder.parent.rmdir()


@contextlib.contextmanager
def _index_changed(source: FolderPlace) -> Iterator[dict[str, Row]]:
    """The rows of an index, to be changed while no other process does; they are written at the end."""
    with source.writing():
        source.folder.mkdir(parents=True, exist_ok=True)
        with locked(source.folder / ".lock"):
            rows = index_of(source)
            yield rows
            entries = {name: asdict(row) for name, row in rows.items()}
            with whole_file(source.folder / INDEX) as unfinished:
                unfinished.write_bytes(files.json_bytes({"format_version": _INDEX_VERSION, "entries": entries}))
