"""Places of zoo entries without a library of their own: folders, zip files, and web servers."""

from __future__ import annotations

import contextlib
import os
import stat
import urllib.request
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ...errors import InputError, JoulecastError, ZooError, damaged_zoo
from ...system.fetching import fetch
from ...system.whole_files import locked, whole_file
from ..entries.files import MANIFEST, read_plain

_MOST_MEMBERS = 100_000


def checked_path(path: str) -> PurePosixPath:
    """Check that a relative path stays within its folder.

    Raises ZooError: the path is absolute or leads out of the folder.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or "\\" in path or "\0" in path or ":" in path or {"..", "."} & set(path.split("/")):
        raise damaged_zoo("a path in a zoo leads out of it", repr(path)[:100])
    return pure


class FolderSource:
    """Entries below a folder. Links in it are not followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        self._refuse_unless_there()
        pure = checked_path(path)
        found = self._folder
        for part in pure.parts:
            found = found / part
            if found.is_symlink():
                raise ZooError(
                    "a path in a zoo is a link, which is not followed",
                    given=str(found),
                    hint="copy the file that it points to in its place",
                )
        return read_plain(found, most_bytes) if found.exists() else None

    def names(self) -> list[str]:
        """See `Source.names`."""
        self._refuse_unless_there()
        return sorted(
            f"{manifest.parent.parent.name}/{manifest.parent.name}" for manifest in self._folder.glob(f"*/*/{MANIFEST}")
        )

    def files(self, name: str) -> list[str]:
        """See `Source.files`."""
        folder = self._folder / checked_path(name)
        return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []

    def write(self, files: Mapping[str, bytes]) -> None:
        """See `Source.write`."""
        with self._writing():
            self._folder.mkdir(parents=True, exist_ok=True)
            for path, data in files.items():
                target = self._folder / checked_path(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(target) as unfinished:
                    unfinished.write_bytes(data)
                    unfinished.chmod(0o644)

    def delete(self, paths: list[str]) -> None:
        """See `Source.delete`."""
        with self._writing():
            for path in paths:
                (self._folder / checked_path(path)).unlink(missing_ok=True)
            for folder in {(self._folder / checked_path(path)).parent for path in paths}:
                with contextlib.suppress(OSError):  # something else lies in it
                    folder.rmdir()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """See `Source.changing`."""
        with self._writing(), locked(self._folder / ".lock"):
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of the system, such as a full disk, into an error that names the folder."""
        try:
            yield
        except OSError as error:
            raise ZooError(
                "this zoo cannot be written to",
                given=f"{self._folder}: {error.strerror}",
                hint="push to a folder that this user may write to, on a disk with room",
            ) from error

    def _refuse_unless_there(self) -> None:
        if not self._folder.is_dir():
            raise InputError(
                "there is no such folder", given=str(self._folder), allowed="a folder, a .zip file, https:// or s3://"
            )


class ReadOnly(ABC):
    """A place that cannot be written to. Its subclasses say why."""

    def write(self, *_: object) -> Any:
        """Refuse, as all that changes a place."""
        raise self.refusal()

    delete = changing = files = write

    @abstractmethod
    def refusal(self) -> JoulecastError:
        """The error for a user who asks for a change."""


class ZipSource(ReadOnly):
    """Entries in a zip file, which is read member by member and never unpacked to disk."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise damaged_zoo("this zip file cannot be read", f"{path}: {error}"[:300]) from error
        self._path = path
        members = self._zip.infolist()
        if len(members) > _MOST_MEMBERS:
            raise damaged_zoo("this zip file has more members than any zoo", len(members), _MOST_MEMBERS)
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            if member.is_dir():
                continue
            mode = member.external_attr >> 16
            if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
                raise damaged_zoo("this zip file holds a link or a device", repr(member.filename)[:100])
            name = str(checked_path(member.filename))
            if name in self._members:
                raise damaged_zoo("this zip file holds two files of one name", repr(name)[:100])
            self._members[name] = member
        # A zip of a folder often has the name of that folder in front of each member.
        tops = {name.split("/", 1)[0] for name in self._members}
        manifests = [name for name in self._members if name.endswith(f"/{MANIFEST}")]
        deep = bool(manifests) and all(name.count("/") == 3 for name in manifests)
        self._prefix = f"{tops.pop()}/" if deep and len(tops) == 1 else ""

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        member = self._members.get(self._prefix + str(checked_path(path)))
        if member is None:
            return None
        try:
            # The size that the zip file states may be wrong, so no more than the allowed size is read.
            with self._zip.open(member) as file:
                data = file.read(most_bytes + 1)
        except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError, EOFError, ValueError) as e:
            raise damaged_zoo("a member of this zip file cannot be read", f"{path[:100]}: {e}"[:300]) from e
        if len(data) > most_bytes:
            raise damaged_zoo("a file of this zoo is larger than allowed", path[:100], f"up to {most_bytes:,} bytes")
        return data

    def names(self) -> list[str]:
        """See `Source.names`."""
        found = []
        for name in self._members:
            parts = name.removeprefix(self._prefix).split("/")
            if len(parts) == 3 and parts[2] == MANIFEST:
                found.append("/".join(parts[:2]))
        return sorted(found)

    def refusal(self) -> ZooError:
        """See `ReadOnly.refusal`."""
        return ZooError("a zip file is read only", given=str(self._path), hint="push to a folder, and zip that folder")


TOKEN = "JOULECAST_ZOO_TOKEN"  # noqa: S105  # the name of a variable
_SECONDS = 300.0  # per file, of which the largest has 64 MB


class HttpSource(ReadOnly):
    """Entries below an address, which can be read but not written.

    If $JOULECAST_ZOO_TOKEN is set, it is sent as a bearer token.
    """

    def __init__(self, where: str) -> None:
        self._base = where.rstrip("/")

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        url = f"{self._base}/{quote(str(checked_path(path)))}"
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
            given=f"{self._base}/index.json",
            hint="serve a folder that `joulecast zoo push` wrote",
        )

    def refusal(self) -> InputError:
        """See `ReadOnly.refusal`."""
        return InputError("a zoo behind HTTP is read only", given=self._base, hint="push to the folder that it serves")
