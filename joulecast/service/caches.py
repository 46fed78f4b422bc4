"""Finished answers, which are not sent again to clients that have them (ETag), and the predictors that they rest on.

Predictors may change while the service runs: those in the zoo, and those that `joulecast zoo pull` wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from itertools import chain
from typing import Any, cast

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..errors import ZooError
from ..hardware import find_gpu
from ..operations.network import Network
from ..operations.operation import MODES
from ..remote.wire import MEDIA_TYPE
from ..system.caches import OPERATION_BYTES, BoundedCache
from ..system.resources import shipped
from ..zoo import find_predictor
from ..zoo.entries.files import MANIFEST
from ..zoo.store import pulled
from .bodies import read
from .logs import log

JSON, CSV = "application/json", "text/csv; charset=utf-8"
_OVERHEAD_BYTES = 500  # of a cached answer besides its body
_TEXT_BYTES = 120  # bytes of a short string besides its characters, and of its references in two lists


def network_bytes(network: Network) -> int:
    """Estimated memory of a network, including the paths of its modules."""
    texts = chain(
        *(entry.module_paths for entry in network),
        *((*dropped.module_paths, dropped.name, dropped.reason) for dropped in network.dropped),
    )
    return OPERATION_BYTES * len(network) + sum(_TEXT_BYTES + len(text) for text in texts)


def media_type_of(accept: str, form: str | None = None) -> str:
    """The media type of an answer: that of `?format=`, or else of the header Accept; JSON by default."""
    if form is not None:
        return CSV if form == "csv" else JSON
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    answered = {"text/csv": CSV, JSON: JSON, MEDIA_TYPE: MEDIA_TYPE}
    return next((answered[part] for part in accepted if part in answered), JSON)


class AnswerCache:
    """A cache of finished answers for one state of the zoo."""

    def __init__(self, most_bytes: int) -> None:
        self.finished: BoundedCache[bytes, Response] = BoundedCache(most_bytes)
        self.generation = ""
        """State of the zoo that the answers belong to. It is part of every key, so a new state hides older answers."""

    def key(self, request: Request, body: bytes) -> bytes:
        """Digest of everything that an answer depends on."""
        parts = (
            self.generation.encode(),
            request.method.encode(),
            request.url.path.encode(),
            request.scope["query_string"],
            media_type_of(request.headers.get("accept", "")).encode(),
            body,
        )
        digest = hashlib.sha256()
        for part in parts:
            # Preceded by its length, or two requests with the same bytes cut differently would look alike.
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.digest()


# The zoo may change at any time. So clients must revalidate, but get the answer again only if it has changed.
_REVALIDATED = {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization"}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class CachedRoute(APIRoute):
    """A route whose answers depend only on the request and the zoo."""

    def get_route_handler(self) -> Handler:
        """The route's handler, behind the cache."""
        handler = super().get_route_handler()
        model = None if self.body_field is None else cast("type[BaseModel]", self.body_field.field_info.annotation)

        async def cached(request: Request) -> Response:
            cache: AnswerCache = request.app.state.cache
            # The body is read here, so that one that is too large or too slow gets its own error.
            body = await request.body()
            key = cache.key(request, body)
            response = cache.finished.get(key)
            if response is None:
                response = await handler(request if model is None else await read(request, body, model))
                if response.status_code != 200:
                    return response
                response.headers["ETag"] = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
                response.headers.update(_REVALIDATED)
                cache.finished.put(key, response, len(response.body) + _OVERHEAD_BYTES)
            etag = response.headers["ETag"]
            have = request.headers.get("if-none-match", "").split(",")
            if any(each.strip().removeprefix("W/") in (etag, "*") for each in have):
                return Response(status_code=304, headers={"ETag": etag, **_REVALIDATED})
            return response

        return cached


WARMED = ("A30", "H100 SXM")
"""GPUs whose predictors are loaded before the first request: one with a predictor of its own, and one without."""


def generation() -> str:
    """A text that changes whenever a predictor in the zoo or the cache changes, or the list of pulled ones is damaged.

    Raises:
        OSError: A file is being replaced at this moment.
    """
    entries: Mapping[str, int] = {
        str(path): path.stat().st_mtime_ns for path in sorted(shipped("zoo").glob(f"*/*/{MANIFEST}"))
    }
    try:
        names: object = {name: row.manifest_sha256 for name, row in sorted(pulled().items())}
    except ZooError as error:
        # The service goes on: requests for these entries, and requests for readiness, are answered with this error.
        names = str(error)
    return hashlib.sha256(repr((__version__, entries, names)).encode()).hexdigest()[:16]


def damage() -> str | None:
    """Why the predictors that most requests need cannot be loaded; None where they can."""
    try:
        for gpu in WARMED:
            for mode in MODES:
                find_predictor(find_gpu(gpu), mode)
    except (ZooError, OSError) as error:
        return str(error)
    return None


async def watch(every_s: float, seen: str, reloaded: Callable[[str, str | None], None]) -> None:
    """Check every few seconds whether predictors have changed, so that answers of old ones are dropped.

    Each new generation is told to `reloaded`, with what `damage` says of it.
    """
    while True:
        await asyncio.sleep(every_s)
        try:
            now = await asyncio.to_thread(generation)
        except OSError as error:
            # The zoo is being written to. The loaded predictors go on answering.
            log(logging.WARNING, "zoo unreadable", error=str(error))
            continue
        if now != seen:
            seen = now
            fault = await asyncio.to_thread(damage)
            reloaded(now, fault)
            log(logging.INFO if fault is None else logging.ERROR, "reloaded", generation=now, damage=fault)
