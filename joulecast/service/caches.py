"""The cache of finished answers, which are not sent again to clients that have them (ETag)."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, cast

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from ..operations.network import Network
from ..system.caches import OPERATION_BYTES, BoundedCache
from .bodies import read
from .rendering import media_type_of

_TEXT_BYTES = 120  # bytes of a short string besides its characters, and of its references in two lists


def network_bytes(network: Network) -> int:
    """Estimated memory of a network, including the paths of its modules."""
    texts = chain(
        *(entry.module_paths for entry in network),
        *((*dropped.module_paths, dropped.name, dropped.reason) for dropped in network.dropped),
    )
    return OPERATION_BYTES * len(network) + sum(_TEXT_BYTES + len(text) for text in texts)


_WORTH_ZIPPING_BYTES = 20_000


@dataclass(frozen=True)
class Finished:
    """An answer, ready to be sent.

    Args:
        body: Bytes of the body.
        media_type: Media type of the body.
        etag: Digest of the body and its type, in quotes.
    """

    body: bytes
    media_type: str
    etag: str

    @property
    def size_bytes(self) -> int:
        """Estimated memory of the answer, including its compressed form."""
        return len(self.body) + (len(self.body) // 8 if len(self.body) > _WORTH_ZIPPING_BYTES else 0) + 500

    @cached_property
    def zipped(self) -> bytes:
        """The body as gzip."""
        return gzip.compress(self.body, 4, mtime=0)


class AnswerCache:
    """A cache of finished answers for one state of the zoo."""

    def __init__(self, most_bytes: int) -> None:
        self.finished: BoundedCache[bytes, Finished] = BoundedCache(most_bytes)
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


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class CachedRoute(APIRoute):
    """A route whose answers depend only on the request and the zoo."""

    async def answered(self, handler: Handler, request: Request, question: BaseModel | None) -> Response:
        """Compute an answer that is not in the cache.

        The question is None where the request has no body, or none in JSON.
        """
        return await handler(request)

    def get_route_handler(self) -> Handler:
        """The route's handler, behind the cache."""
        handler = super().get_route_handler()
        model = None if self.body_field is None else cast("type[BaseModel]", self.body_field.field_info.annotation)

        async def cached(request: Request) -> Response:
            cache: AnswerCache = request.app.state.cache
            # The body is read here, so that one that is too large or too slow gets its own error.
            body = await request.body()
            key = cache.key(request, body)
            finished = cache.finished.get(key)
            if finished is None:
                question = None
                if model is not None:
                    request = parsed = await read(request, body, model)
                    question = parsed.question
                response = await self.answered(handler, request, question)
                if response.status_code != 200:
                    return response
                content = bytes(response.body)
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                finished = Finished(content, response.headers["content-type"], etag)
                cache.finished.put(key, finished, finished.size_bytes)
            return _response(finished, request.headers)

        return cached


def _response(finished: Finished, asked: Headers) -> Response:
    zipped = len(finished.body) > _WORTH_ZIPPING_BYTES and "gzip" in asked.get("accept-encoding", "")
    # An ETag identifies bytes, and the compressed bytes are different ones.
    etag = f'{finished.etag[:-1]}-gzip"' if zipped else finished.etag
    # The zoo may change at any time. So clients must revalidate, but get the answer again only if it has changed.
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Accept, Accept-Encoding, Authorization"}
    have = asked.get("if-none-match")
    if have is not None and _matches(have, finished.etag):
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    response = Response(finished.zipped if zipped else finished.body, headers=headers)
    response.headers["content-type"] = finished.media_type
    return response


def _matches(have: str, etag: str) -> bool:
    return any(each.strip().removeprefix("W/").replace('-gzip"', '"') in (etag, "*") for each in have.split(","))
