"""From the body of a request to its answer: bodies are bounded and parsed, and finished answers are cached.

Clients that have an answer (ETag) do not get it again, until predictors change: those in the zoo, and those that
`joulecast zoo pull` wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, cast

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..errors import RefusalError, ZooError, unknown_name
from ..hardware import find_gpu
from ..operations.operation import MODES
from ..predictors.board.profile import BoardProfile
from ..remote.wire import MEDIA_TYPE
from ..system.caches import BoundedCache
from ..system.resources import shipped
from ..zoo import find_predictor
from ..zoo.files import MANIFEST
from ..zoo.store import pulled, pulled_index
from .logs import log
from .problems import invalid, refuse_over
from .settings import Settings

JSON, CSV = "application/json", "text/csv; charset=utf-8"
_OVERHEAD_BYTES = 500  # of a cached answer besides its body


def media_type_of(accept: str, form: str | None = None) -> str:
    """The media type of an answer: that of `?format=`, or else of the header Accept; JSON by default."""
    if form is not None:
        return CSV if form == "csv" else JSON
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    answered = {"text/csv": CSV, JSON: JSON, MEDIA_TYPE: MEDIA_TYPE}
    return next((answered[part] for part in accepted if part in answered), JSON)


def _key(request: Request, body: bytes) -> bytes:
    """Digest of everything that an answer depends on, the state of the zoo among it."""
    accepted = media_type_of(request.headers.get("accept", ""))
    generation, query = request.app.state.generation, request.scope["query_string"]
    # In quotes, or two requests with the same bytes cut differently would look alike.
    about = repr((generation, request.method, request.url.path, query, accepted))
    return hashlib.sha256(about.encode() + body).digest()


LARGE_BYTES = 16_000
"""Smaller bodies are parsed in about a millisecond, and need not wait for a worker."""

_PARSING = threading.Lock()
_MOST_IN_TREE = 5_000  # module paths, of which the largest model with a template has 1,300; each takes 0.3 ms in a tree


class _ReadRequest(Request):
    """A request whose body has been parsed already, so that FastAPI uses the question as it is."""

    def __init__(self, request: Request, body: bytes, question: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._bytes = body
        self.question = question

    async def body(self) -> bytes:
        return self._bytes

    async def json(self) -> Any:
        return self.question


async def _read(request: Request, body: bytes, model: type[BaseModel]) -> _ReadRequest:
    """Parse a body: a large one in a thread of the workers, because in the event loop it would delay all others.

    Raises JoulecastError: the body is not such a question, or holds more than the limits allow; too many requests wait
    already, or it takes too long.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        hint = "send the header Content-Type: application/json"
        raise RefusalError(415, "media-type", "the body is not declared as JSON", given=media_type, hint=hint)
    state = request.app.state
    parse = partial(_question, model, body, state.settings, state.calibrations)
    if len(body) <= LARGE_BYTES:
        return _ReadRequest(request, body, parse())
    client = request.scope["state"]["client"]
    question = await state.workers.run(parse, seconds=state.settings.max_seconds, client=client)
    return _ReadRequest(request, body, question)


def _question(
    model: type[BaseModel], body: bytes, settings: Settings, calibrations: Mapping[str, BoardProfile]
) -> BaseModel:
    # One at a time: a parser lets no other thread run, and two in turn would keep the event loop waiting for both.
    with _PARSING if len(body) > LARGE_BYTES else contextlib.nullcontext():
        try:
            # Only names of fields are repeated: looking for all texts among earlier ones takes five times as long.
            content = from_json(body, cache_strings="keys")
        except ValueError as error:
            hint = "write the body as one JSON object"
            raise RefusalError(400, "json", "the body is not valid JSON", given=str(error), hint=hint) from error
        _refuse_many(content, settings)
        name = content.get("calibration") if isinstance(content, dict) else None
        if isinstance(name, str):  # The content of the file stands in the place of its name, which is never a path.
            if name not in calibrations:
                hint = "ask /v1/calibrations, or send the content of the file"
                raise unknown_name("calibration", name[:100], calibrations, hint=hint)
            content["calibration"] = calibrations[name].to_dict()
        try:
            return model.model_validate(content)
        except ValidationError as error:
            raise invalid(error, "body") from error


def _refuse_many(content: Any, settings: Settings) -> None:
    """Refuse long lists before they are validated. Raises RefusalError: a list has more items than it may have."""
    limits = {
        "networks": ("there are too many networks", settings.max_batch),
        "operations": ("there are too many operations", settings.max_operations),
    }
    for name, (what, most) in limits.items() if isinstance(content, dict) else ():
        value = content.get(name)
        if not isinstance(value, list):
            continue
        refuse_over(what, len(value), most)
        for item in value if name != "operations" else ():
            _refuse_many(item, settings)
        listed = (item.get("module_paths") for item in value if content.get("tree") and isinstance(item, dict))
        paths = sum(len(each) for each in listed if isinstance(each, list))
        refuse_over("the operations run in too many modules for an energy tree", paths, _MOST_IN_TREE)


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
            cache: BoundedCache[bytes, Response] = request.app.state.cache
            # The body is read here, so that one that is too large or too slow gets its own error.
            body = await request.body()
            key = _key(request, body)
            response = cache.get(key)
            if response is None:
                response = await handler(request if model is None else await _read(request, body, model))
                if response.status_code != 200:
                    return response
                response.headers["ETag"] = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
                response.headers.update(_REVALIDATED)
                cache.put(key, response, len(response.body) + _OVERHEAD_BYTES)
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

    Raises OSError: a file is being replaced at this moment.
    """
    entries: Mapping[str, int] = {
        str(path): path.stat().st_mtime_ns for path in sorted(shipped("zoo").glob(f"*/*/{MANIFEST}"))
    }
    try:
        names: object = {name: row.manifest_sha256 for name, row in sorted(pulled().items())}
    except ZooError as error:
        # The service goes on: requests for these entries, and requests for readiness, are answered with this error. The
        # list may have been mended and damaged again since the last look.
        names = str(error), pulled_index().stat().st_mtime_ns
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


async def watch(state: State) -> None:
    """Check every few seconds whether predictors have changed, so that answers of old ones are not given any more."""
    while True:
        await asyncio.sleep(state.settings.watch_seconds)
        try:
            now = await asyncio.to_thread(generation)
        except OSError as error:
            # The zoo is being written to. The loaded predictors go on answering.
            log(logging.WARNING, "zoo unreadable", error=str(error))
            continue
        if now != state.generation:
            fault = await asyncio.to_thread(damage)
            state.generation, state.damage = now, fault
            state.reloads += 1
            log(logging.INFO if fault is None else logging.ERROR, "reloaded", generation=now, damage=fault)
