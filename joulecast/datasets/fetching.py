"""Fetches tables of published measurements from a web server, and checks them against the digests that it states.

The authors publish their measurements in many files of several forms. The tables that joulecast imports are made of
these files, and nobody publishes them. So a team makes the tables of a source once, and puts them on a server of its
own, beside a file with their digests (`sha256sum * > SHA256SUMS`). Everybody else fetches them from there.
"""

from __future__ import annotations

import hashlib
import re
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote, urlsplit

from ..errors import DatasetError, InputError, unknown_name
from ..fetching import fetch
from ..progress import tracked
from ..whole_files import whole_file
from .published import PUBLISHED

DIGESTS = "SHA256SUMS"
"""Name of the file with the digests of the tables, in the format that sha256sum writes and checks."""

_SECONDS = 600.0  # per table
_MOST_BYTES = 512 << 20
_MOST_DIGESTS_BYTES = 1 << 20
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<name>[^/\\]+)")


def fetch_tables(source: str, address: str | None, cache: Path) -> Path:
    """Fetch the tables of a source into a cache. Tables that are there already, with the right digest, are not fetched.

    Args:
        source: Name of the source, a key of `PUBLISHED`.
        address: Address of a folder on a web server that has the tables and their digests (`DIGESTS`).
        cache: Folder of the cache.

    Returns:
        The folder with the tables, for the importer of the source.

    Raises:
        UnknownNameError: There is no such source.
        InputError: No address is given, or one that is not of a web server.
        DatasetError: The server does not answer or lacks a table, or a table does not have its digest.
    """
    if source not in PUBLISHED:
        raise unknown_name("source of measurements", source, PUBLISHED)
    published = PUBLISHED[source]
    files = f"{', '.join(published.tables)} and {DIGESTS}"
    if address is None:
        raise InputError(
            f"nobody has published the tables of {source} that are imported",
            given="no address",
            allowed=f"--from ADDRESS, of a folder on a web server with {files}",
            hint=f"the authors' files: {published.address}. The importer of {source} says what the tables hold; "
            f"`joulecast datasets import {source} FOLDER` imports them from a folder",
        )
    if urlsplit(address).scheme not in ("http", "https"):
        raise InputError(
            "tables are fetched from a web server",
            given=address,
            allowed=f"http:// or https://, and a folder with {files}",
            hint=f"`joulecast datasets import {source} FOLDER` imports them from a folder of this machine",
        )
    digests = _digests(address)
    if missing := [name for name in published.tables if name not in digests]:
        raise DatasetError(
            f"the folder lacks tables of {source}",
            given=f"{address}: {', '.join(missing)}",
            allowed=files,
            hint=f"ask who runs the server; `sha256sum * > {DIGESTS}` lists what is in a folder",
        )
    folder = cache / "tables" / source
    folder.mkdir(parents=True, exist_ok=True)
    for name in tracked([name for name in (*published.tables, *published.more_tables) if name in digests], "tables"):
        _fetch_table(address, name, digests[name], folder / name)
    return folder


def _fetch_table(address: str, name: str, sha256: str, path: Path) -> None:
    if path.is_file() and _sha256(path.read_bytes()) == sha256:
        return
    data = _read(address, name, _MOST_BYTES)
    if _sha256(data) != sha256:
        raise DatasetError(
            "this table is not the one that was published",
            given=f"{address.rstrip('/')}/{name}: sha256 {_sha256(data)}",
            allowed=f"sha256 {sha256}, as {DIGESTS} says",
            hint="fetch it again; if that does not help, ask who runs the server",
        )
    with whole_file(path) as unfinished:
        unfinished.write_bytes(data)


def _digests(address: str) -> Mapping[str, str]:
    """File name -> sha256 in hexadecimal digits."""
    text = _read(address, DIGESTS, _MOST_DIGESTS_BYTES).decode("utf-8", errors="replace")
    found = [_LINE.fullmatch(line) for line in text.splitlines() if line]
    if not found or None in found:
        raise DatasetError(
            "this is no list of digests",
            given=f"{address.rstrip('/')}/{DIGESTS}",
            allowed="lines of 64 hexadecimal digits, two spaces and a file name",
            hint=f"`sha256sum * > {DIGESTS}` writes it",
        )
    return {line["name"]: line["sha256"] for line in found if line is not None}


def _read(address: str, name: str, most_bytes: int) -> bytes:
    url = f"{address.rstrip('/')}/{quote(name)}"
    try:
        request = urllib.request.Request(url)  # noqa: S310  # the scheme was checked
        status, data = fetch(request, seconds=_SECONDS, most_bytes=most_bytes, redirects=True)
    except (OSError, HTTPException, ValueError) as error:
        raise DatasetError(
            "these tables cannot be fetched",
            given=f"{url}: {error}",
            hint="without a network, `joulecast datasets import SOURCE FOLDER` imports tables of a folder",
        ) from error
    if status != 200:
        raise DatasetError(
            "these tables cannot be fetched",
            given=f"{url}: status {status}",
            allowed=f"the address of a folder with {DIGESTS} and the tables that it lists",
            hint="check the address, or ask who runs the server",
        )
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
