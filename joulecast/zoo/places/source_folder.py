"""What a place of zoo entries is, and the one that is a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import ClassVar

from ...errors import InputError, ZooError, damaged_zoo
from ...system.whole_files import locked, whole_file
from ..entries.files import MANIFEST, read_plain

INDEX = "index.json"


class Source:
    """A place of zoo entries that can be read. Paths in it are relative, with slashes."""

    where: str
    kind: ClassVar[str]

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Read a file; None where there is none. Raises ZooError: it has more than `most_bytes`, or is not plain."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """List the names of entries, for a place without an index."""
        raise NotImplementedError

    def files(self, folder: str) -> list[str]:
        """Paths of all files below a folder."""
        raise self._read_only()

    def write(self, path: str, data: bytes) -> None:
        """Write a file. Raises ZooError: the place cannot be written to."""
        raise self._read_only()

    def delete(self, paths: list[str]) -> None:
        """Delete files. Raises ZooError: the place cannot be written to."""
        raise self._read_only()

    def update(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a file by what a function makes of it, while no other process does."""
        raise self._read_only()

    def _read_only(self) -> InputError:
        hint = "push to a folder or to S3; a web server serves the files of such a folder"
        return InputError(f"{self.kind} is read only", given=self.where, hint=hint)


def checked_path(path: str) -> PurePosixPath:
    """Check that a relative path stays within its folder.

    Raises ZooError: the path is absolute or leads out of the folder.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or "\\" in path or "\0" in path or ":" in path or {"..", "."} & set(path.split("/")):
        raise damaged_zoo("a path in a zoo leads out of it", repr(path)[:100])
    return pure


class FolderSource(Source):
    """Entries below a folder. Links in it are not followed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
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
        """See `Source.names`."""
        self._refuse_unless_there()
        return sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in self.folder.glob(f"*/*/{MANIFEST}"))

    def files(self, folder: str) -> list[str]:
        """See `Source.files`."""
        inside = (self.folder / checked_path(folder)).rglob("*")
        return sorted(path.relative_to(self.folder).as_posix() for path in inside if not path.is_dir())

    def write(self, path: str, data: bytes) -> None:
        """See `Source.write`."""
        target = self.folder / checked_path(path)
        with self.writing():
            target.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(target) as unfinished:
                unfinished.write_bytes(data)
                unfinished.chmod(0o644)

    def delete(self, paths: list[str]) -> None:
        """See `Source.delete`. Folders in which nothing is left go as well."""
        with self.writing():
            for path in paths:
                (self.folder / checked_path(path)).unlink(missing_ok=True)
            above = {parent for path in paths for parent in list(checked_path(path).parents)[:-1]}
            for each in sorted(above, key=lambda parent: -len(parent.parts)):
                with contextlib.suppress(OSError):  # something else lies in it
                    (self.folder / each).rmdir()

    def update(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """See `Source.update`."""
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
                "there is no such folder", given=self.where, allowed="a folder (unzip an archive), https:// or s3://"
            )


def within_size(data: bytes, path: str, most_bytes: int) -> bytes:
    """The content of a file in a place. Raises ZooError: it is larger than allowed."""
    if len(data) > most_bytes:
        raise damaged_zoo("a file of this zoo is larger than allowed", path[:100], f"up to {most_bytes:,} bytes")
    return data
