"""Zoo entries behind a web server."""

from __future__ import annotations

import os
import urllib.request
from http.client import HTTPException
from urllib.parse import quote

from ...errors import ZooError
from ...system.fetching import fetch
from .source_folder import INDEX, Source, checked_path

TOKEN = "JOULECAST_ZOO_TOKEN"  # noqa: S105  # the name of a variable
_SECONDS = 300.0  # per file, of which the largest has 64 MB


class HttpSource(Source):
    """Entries below an address, which can be read but not written.

    If $JOULECAST_ZOO_TOKEN is set, it is sent as a bearer token.
    """

    kind = "a zoo behind HTTP"

    def __init__(self, where: str) -> None:
        self.where = where.rstrip("/")

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
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
