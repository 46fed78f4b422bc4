"""The cache of finished answers, which are not sent again to clients that have them (ETag)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from itertools import chain
from typing import Any, cast

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..operations.network import Network
from ..system.caches import OPERATION_BYTES, BoundedCache
from .bodies import read
from .rendering import media_type_of

_OVERHEAD_BYTES = 500  # of a cached answer besides its body
_TEXT_BYTES = 120  # bytes of a short string besides its characters, and of its references in two lists


def network_bytes(network: Network) -> int:
    """Estimated memory of a network, including the paths of its modules."""
    texts = chain(
        *(entry.module_paths for entry in network),
        *((*dropped.module_paths, dropped.name, dropped.reason) for dropped in network.dropped),
    )
    return OPERATION_BYTES * len(network) + sum(_TEXT_BYTES + len(text) for text in texts)


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
