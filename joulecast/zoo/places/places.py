"""Places of zoo entries: a folder, which can be written, and an address of a web server, which can be read."""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import quote

from ...errors import InputError, ZooError, damaged_zoo
from ...system.fetching import fetch
from ...system.whole_files import locked, whole_file
from ..entries.files import MANIFEST, read_plain

INDEX = "index.json"
TOKEN = "JOULECAST_ZOO_TOKEN"  # noqa: S105  # the name of a variable
_SECONDS = 300.0  # per file, of which the largest has 64 MB


class Place(Protocol):
    """A place of zoo entries that can be read. Paths in it are relative, with slashes."""

    where: str

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Read a file; None where there is none. Raises ZooError: it has more than `most_bytes`, or is not plain."""

    def names(self) -> list[str]:
        """List the names of entries, for a place without an index."""


def checked_path(path: str) -> PurePosixPath:
    """Check that a relative path stays within its folder.

    Raises ZooError: the path is absolute or leads out of the folder.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or "\\" in path or "\0" in path or ":" in path or {"..", "."} & set(path.split("/")):
        raise damaged_zoo("a path in a zoo leads out of it", repr(path)[:100])
    return pure


class FolderPlace:
    """Entries below a folder. Links in it are not followed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Place.read`."""
        self._refuse_unless_there()
        file = self.folder
        for part in checked_path(path).parts:
            file = file / part
            if file.is_symlink():
                raise ZooError(
                    "a path in a zoo is a link, which is not followed",
                    given=str(file),
                    hint="copy the file that it points to in its place",
                )
        return read_plain(file, most_bytes) if file.exists() else None

    def names(self) -> list[str]:
        """See `Place.names`."""
        self._refuse_unless_there()
        return sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in self.folder.glob(f"*/*/{MANIFEST}"))

    def files(self, folder: str) -> list[str]:
        """Paths of all files below a folder."""
        inside = (self.folder / checked_path(folder)).rglob("*")
        return sorted(path.relative_to(self.folder).as_posix() for path in inside if not path.is_dir())

    def write(self, path: str, data: bytes) -> None:
        """Write a file. Raises ZooError: the folder cannot be written to."""
        target = self.folder / checked_path(path)
        with self.writing():
            target.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(target) as unfinished:
                unfinished.write_bytes(data)
                unfinished.chmod(0o644)

    def delete(self, paths: list[str]) -> None:
        """Delete files, and the folders in which nothing is left."""
        with self.writing():
            for path in paths:
                (self.folder / checked_path(path)).unlink(missing_ok=True)
            above = {parent for path in paths for parent in list(checked_path(path).parents)[:-1]}
            for each in sorted(above, key=lambda parent: -len(parent.parts)):
                with contextlib.suppress(OSError):  # something else lies in it
                    (self.folder / each).rmdir()

    def update(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a file by what a function makes of it, while no other process does."""
        with self.writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / ".lock"):
                file = self.folder / path
                self.write(path, change(file.read_bytes() if file.exists() else None))

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
        """See `Place.read`."""
        url = f"{self.where}/{quote(str(checked_path(path)))}"
        request = urllib.request.Request(url)  # noqa: S310  # the scheme was checked when the source was opened
        if token := os.environ.get(TOKEN):
            request.add_header("Authorization", f"Bearer {token}")
        try:
            status, data = fetch(request, seconds=_SECONDS, most_bytes=most_bytes, redirects=True)
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
