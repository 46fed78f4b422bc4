"""Zoo entries behind HTTP or HTTPS: any web server that serves a folder which `joulecast zoo push` wrote."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import quote, urlsplit

from ...errors import InputError, ZooError
from .source_folder import checked_path

TOKEN = "JOULECAST_ZOO_TOKEN"  # noqa: S105  # the name of a variable
_TIMEOUT_S = 20
_CHUNK_BYTES = 1 << 20


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTP and HTTPS only, and takes a token along to the same host only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The request to go on with."""
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme == "http"):
            raise urllib.error.URLError(f"a redirect to {newurl[:100]}, which is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and old.netloc != new.netloc:
            request.remove_header("Authorization")
        return request


class HttpSource:
    """Entries below an address, read only.

    With $JOULECAST_ZOO_TOKEN set, it is sent as a bearer token.
    """

    def __init__(self, where: str) -> None:
        self._base = where.rstrip("/")
        # No handler for files or FTP, so that no redirect leads there.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _SameHost(),
        ):
            self._opener.add_handler(handler)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `Source.read`."""
        url = f"{self._base}/{quote(str(checked_path(path)))}"
        request = urllib.request.Request(url)  # noqa: S310  # the scheme was checked when the source was opened
        if token := os.environ.get(TOKEN):
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                data = self._body(response, most_bytes)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            refused = error.code in (401, 403)
            raise ZooError(
                "this zoo refuses you" if refused else "this zoo does not answer as it should",
                given=f"{url}: {error.code} {error.reason}",
                hint=f"set ${TOKEN} to a token that may read it" if refused else "ask who runs it, or try again later",
            ) from error
        except (OSError, HTTPException, ValueError) as error:
            raise ZooError(
                "this zoo cannot be reached",
                given=url,
                hint=f"{error}; what ships with joulecast, and what was pulled, needs no network",
            ) from error
        if len(data) > most_bytes:
            raise ZooError("a file of this zoo is larger than it may be", given=url, allowed=f"{most_bytes} bytes")
        return data

    def _body(self, response: Any, most_bytes: int) -> bytes:
        found = bytearray()
        while len(found) <= most_bytes:
            chunk = response.read(min(_CHUNK_BYTES, most_bytes + 1 - len(found)))
            if not chunk:
                break
            found += chunk
        return bytes(found)

    def names(self) -> list[str]:
        """None: without an index nothing can be found there.

        Raises:
            ZooError: Always.
        """
        raise ZooError(
            "there is no zoo at this address", given=f"{self._base}/index.json", hint="serve a folder of `zoo push`"
        )

    def write(self, files: Mapping[str, bytes]) -> None:
        """Refused: HTTP is for reading."""
        raise self._read_only()

    def delete(self, paths: list[str]) -> None:
        """Refused: HTTP is for reading."""
        raise self._read_only()

    def _read_only(self) -> InputError:
        return InputError("a zoo behind HTTP is read only", given=self._base, hint="push to the folder that it serves")
