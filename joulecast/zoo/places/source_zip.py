"""Zoo entries in a zip file."""

from __future__ import annotations

import stat
import zipfile
import zlib
from pathlib import Path

from ...errors import damaged_zoo
from ..entries.files import MANIFEST
from .source_folder import INDEX, Source, checked_path, within_size

_MOST_MEMBERS = 100_000


class ZipSource(Source):
    """Entries in a zip file, which is read member by member and never unpacked to disk."""

    kind = "a zip file"

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise damaged_zoo("this zip file cannot be read", f"{path}: {error}"[:300]) from error
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
        top = f"{min(tops)}/" if len(tops) == 1 else ""
        deep = bool(manifests) and all(name.count("/") == 3 for name in manifests)
        self._prefix = top if deep or f"{top}{INDEX}" in self._members else ""

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
        return within_size(data, path, most_bytes)

    def names(self) -> list[str]:
        """See `Source.names`."""
        found = (name.removeprefix(self._prefix).split("/") for name in self._members)
        return sorted("/".join(parts[:2]) for parts in found if len(parts) == 3 and parts[2] == MANIFEST)
