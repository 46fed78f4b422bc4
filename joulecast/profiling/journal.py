"""The journal of a campaign: one line of JSON per finished measurement, on disk before the next one starts.

A campaign that is killed loses at most the measurement in progress: each line is written completely and synced, and an
incomplete last line is removed when the campaign is resumed. A lock, which ends with its process, keeps other campaigns
out. Each line ends in a checksum of its number and text, so that changed, moved and repeated lines are detected.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ..errors import JournalError
from ..system.whole_files import lock

JOURNAL_VERSION = 3
"""Version of the format. Since version 3 lines have checksums."""

_LINE = re.compile(rb'(\{.*), "crc32": "([0-9a-f]{8})"\}')


_NEXT = "restore the file, or delete that line and all after it, and go on with --resume"


def now() -> str:
    """The time of day in UTC, as records state it: ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _checksum(number: int, text: bytes) -> int:
    """CRC-32 of a line's number and text. The number ties a line to its place."""
    return zlib.crc32(text, number)


class Journal:
    """Append-only records of one campaign.

    Args:
        path: The file, which is created if it does not exist.
        campaign: The campaign that is run; a journal of another campaign is refused. None to read any journal without
            changing it.
        facts: Further facts for the header, such as versions. An existing journal keeps its own.

    Raises:
        JournalError: The journal is of another campaign or version, another process writes to it, or a line is damaged.
    """

    def __init__(
        self, path: str | Path, campaign: Mapping[str, Any] | None, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        if campaign is None and not self.path.is_file():
            raise JournalError(
                "there is no journal", given=str(self.path), hint="name the folder of a campaign that has begun"
            )
        if self.path.exists() and not self.path.is_file():
            raise JournalError("a journal is a regular file", given=str(self.path), hint="use another --out")
        self.torn = False
        self._reads_only = campaign is None
        self._file = self._opened()
        try:
            if not lock(self._file, wait=False):
                raise JournalError(
                    "another campaign is writing to this journal",
                    given=str(self.path),
                    hint="wait for it, or use another --out",
                )
            header, self.records = self._read(campaign, facts or {})
            self.campaign: dict[str, Any] = header["campaign"]
            self.facts: dict[str, Any] = header.get("facts", {})
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record, and wait until it is on disk.

        Raises JournalError: the disk is full. Earlier records stay, and the incomplete line is removed.
        """
        self._write(record)
        self.records.append(dict(record))

    def _opened(self) -> Any:
        try:
            if self._reads_only:
                return self.path.open("rb")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("a+b")
        except OSError as error:
            raise JournalError(
                "the journal cannot be opened", given=f"{self.path}: {error.strerror}", hint="use another --out"
            ) from error

    def _read(
        self, campaign: Mapping[str, Any] | None, facts: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self.torn = True
            if not self._reads_only:
                self._file.truncate(len(whole))
        lines = [self._parsed(number, line) for number, line in enumerate(whole.split(b"\n")[:-1], start=1)]
        self._lines = len(lines)
        if not lines and self._reads_only:
            raise JournalError("this journal is empty", given=str(self.path), hint="collect the campaign again")
        if not lines:
            lines = [{"journal_version": JOURNAL_VERSION, "campaign": dict(campaign or {}), "facts": dict(facts)}]
            self._write(lines[0])
        header, *records = lines
        if not isinstance(header.get("campaign"), dict) or not isinstance(header.get("facts", {}), dict):
            raise JournalError(
                "the first line of this journal is not that of a campaign",
                given=str(self.path),
                hint="restore the file, or use another --out",
            )
        if campaign is not None and header.get("campaign") != dict(campaign):
            raise JournalError(
                "this journal belongs to another campaign",
                given=str(self.path),
                hint="use another --out, or the same settings",
            )
        return header, records

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        where = f"{self.path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise JournalError("a line of this journal is damaged", given=where, hint=_NEXT) from error
        if not isinstance(value, dict):
            raise JournalError("a line of this journal is not a record", given=where, hint=_NEXT)
        if number == 1 and value.get("journal_version") != JOURNAL_VERSION:
            raise JournalError(
                "this journal has another version",
                given=value.get("journal_version"),
                allowed=JOURNAL_VERSION,
                hint="use another --out, or the version of joulecast that wrote it",
            )
        found = _LINE.fullmatch(line)
        if found is None or int(found[2], 16) != _checksum(number, found[1]):
            raise JournalError("a line of this journal was changed, moved or repeated", given=where, hint=_NEXT)
        del value["crc32"]
        return value

    def _write(self, record: Mapping[str, Any]) -> None:
        end = self._file.seek(0, os.SEEK_END)
        text = json.dumps(record).encode().removesuffix(b"}")
        try:
            self._file.write(b'%b, "crc32": "%08x"}\n' % (text, _checksum(self._lines + 1, text)))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._lines += 1
        except OSError as error:
            self._file = self._reopened(end)
            raise JournalError(
                "the journal cannot be written",
                given=f"{self.path}: {error.strerror}",
                hint="make room and go on with --resume: nothing that was finished is lost",
            ) from error

    def _reopened(self, end: int) -> Any:
        # The rest of the incomplete line in Python's buffer must not be written later.
        descriptor = os.dup(self._file.fileno())
        with contextlib.suppress(OSError):
            self._file.close()
        os.ftruncate(descriptor, end)
        return os.fdopen(descriptor, "a+b")
