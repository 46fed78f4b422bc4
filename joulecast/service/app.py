"""The application: routes, page, errors, and background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from operator import attrgetter
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..errors import JoulecastError, RefusalError
from ..hardware import find_gpu
from ..operations.operation import MODES
from ..predictors.batches import load_threads
from ..predictors.board.profile import profiles_in
from ..system.caches import RESULTS
from ..zoo import find_predictor
from . import listings, routes
from .answers import Answers
from .caches import AnswerCache
from .logs import Metrics, log, resident_bytes
from .middleware import OPEN_PATHS, RequestChecks
from .problems import invalid, not_found, problem_response
from .reload import WARMED, generation, watch
from .schemas import SCHEMAS
from .settings import Settings
from .workers import Workers

_ROUTERS = (routes.asked, listings.listed, listings.system, listings.usual)
_TIDY_SECONDS, _TIDY_BYTES = 3.0, 32_000_000
_AT_ONCE = 16  # questions of all clients that are computed; each may take a hundred megabytes
_COLLECTING = 10_000, 5, 1_000  # so that the young have at most 60,000 objects, 0.1 s; all are scanned when it is idle
_WARMING_SECONDS = 600.0  # longest time to load a predictor, even from a slow disk
_DESCRIPTION = (
    "Predicts time, power and energy of PyTorch models on GPUs, before anything runs. All quantities are in SI units, "
    "which are part of their names. Answers depend on the question and the predictors only. They have an ETag, so "
    "that with If-None-Match they are not sent again, for POST as well as GET, because no request changes anything."
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Build the service, with these settings or the defaults. Nothing runs or is loaded until a server starts it."""
    settings = settings or Settings()
    app = FastAPI(
        title="joulecast",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url="/v1/openapi.json",
        # FastAPI's documentation pages load scripts from other servers.
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        root_path=settings.root_path,
        redirect_slashes=False,
        responses=None,
    )
    state = app.state
    state.settings = settings
    state.calibrations = profiles_in(settings.calibrations) if settings.calibrations else {}
    state.answers = Answers(settings)
    state.cache = AnswerCache(settings.cached_answers_bytes)
    state.results = RESULTS
    state.workers = Workers(settings.threads, max(settings.threads, _AT_ONCE), settings.max_waiting)
    state.ready = False
    state.damage = None
    state.reloads = 0
    state.metrics = Metrics(_gauges(state), __version__)
    for router in _ROUTERS:
        app.include_router(router)
    app.add_exception_handler(JoulecastError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_middleware(RequestChecks, settings=settings, observe=state.metrics.observe)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match"],
            expose_headers=["ETag", "X-Request-ID"],
        )
    _describe(app)
    return app


_GAUGES = {
    "ready": ("ready", "Whether the predictors are loaded"),
    "waiting_requests": ("workers.waiting", "Requests that wait for a thread or are computed"),
    "answer_hits_total": ("cache.finished.hits", "Answers taken from the cache"),
    "answer_misses_total": ("cache.finished.misses", "Answers that were computed"),
    "answer_bytes": ("cache.finished.size", "Memory of cached answers"),
    "cached_networks": ("answers.networks.cached.count", "Cached networks"),
    "network_bytes": ("answers.networks.cached.size", "Memory of cached networks, estimated"),
    "known_bytes": ("results.size", "Memory of what the library keeps, so that other clocks are answered quickly"),
    "known_hits_total": ("results.hits", "Results that the library had kept"),
    "reloads_total": ("reloads", "Changes of predictors that were noticed"),
}
"""Name of a gauge -> where the application's state has its value, and its description."""


def _gauges(state: State) -> dict[str, tuple[str, Callable[[], float]]]:
    """Name of each gauge -> its description, and a function that reads its value from the application's state."""
    read: dict[str, tuple[str, Callable[[], float]]] = {
        f"joulecast_{name}": (words, partial(attrgetter(place), state)) for name, (place, words) in _GAUGES.items()
    }
    return {**read, "joulecast_resident_bytes": ("Resident memory of this process", resident_bytes)}


def _describe(app: FastAPI) -> None:
    """Add to the OpenAPI document what FastAPI cannot derive from the code."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = make()
        document["components"]["schemas"]["Problem"] = SCHEMAS["Problem"].model_json_schema()
        if app.state.settings.tokens:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            for path in OPEN_PATHS & document["paths"].keys():
                document["paths"][path]["get"]["security"] = []
        app.openapi_schema = document
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own documentation says so


def _request_id(request: Request) -> str | None:
    found: str | None = request.scope.get("state", {}).get("request_id")
    return found


async def _refused(request: Request, error: Exception) -> Response:
    return problem_response(cast(JoulecastError, error), _request_id(request))


async def _invalid(request: Request, error: Exception) -> Response:
    return problem_response(invalid(cast(RequestValidationError, error)), _request_id(request))


async def _no_route(request: Request, error: Exception) -> Response:
    error = cast(HTTPException, error)
    refused: RefusalError
    if error.status_code == 404:
        refused = not_found(request.url.path)
    elif error.status_code == 405:
        allowed = (error.headers or {})["Allow"]
        refused = RefusalError(
            405, "method", "this path does not support this method", given=request.method, allowed=allowed
        )
        refused.headers["Allow"] = allowed
    else:
        refused = RefusalError(
            error.status_code,
            "http",
            str(error.detail),
            given=request.url.path,
            hint="/v1/openapi.json lists all paths, and what each takes",
        )
    return problem_response(refused, _request_id(request))


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    first = generation()
    _renew(app, first)
    running = [_warm(app), _tidy(), watch(settings, first, partial(_reloaded, app))]
    tasks = [asyncio.create_task(each) for each in running]
    yield
    app.state.ready = False
    for task in tasks:
        task.cancel()
    app.state.workers.close()
    app.state.answers.networks.tracer.close()


async def _tidy() -> None:
    """Give memory back to the system after large requests, because the allocator would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # musl has none
    trimmed_bytes = resident_bytes()
    while trim is not None:
        await asyncio.sleep(_TIDY_SECONDS)
        if resident_bytes() > trimmed_bytes + _TIDY_BYTES:
            await asyncio.to_thread(trim, 0)
            trimmed_bytes = resident_bytes()


def _reloaded(app: FastAPI, now: str, damage: str | None) -> None:
    _renew(app, now)
    app.state.reloads += 1
    app.state.damage = damage


def _renew(app: FastAPI, now: str) -> None:
    app.state.cache.generation = now


async def _warm(app: FastAPI) -> None:
    """Load the predictors before the first request; those for inference first, because most requests need them."""
    for mode in MODES:
        for gpu in WARMED:
            try:
                await app.state.workers.run(partial(find_predictor, find_gpu(gpu), mode), seconds=_WARMING_SECONDS)
            except JoulecastError as error:
                # No reason to stop: other predictors work, and requests for this one get the same error.
                app.state.damage = str(error)
                log(logging.ERROR, "predictor", gpu=gpu, mode=mode, error=str(error))
        if not app.state.ready:
            app.state.ready = True
            log(logging.INFO, "ready")
    await asyncio.to_thread(load_threads)
    # Everything loaded so far stays in memory. Scanning it for garbage would delay answers by tens of milliseconds.
    gc.collect()
    gc.freeze()
    # By default a large answer is scanned again and again while it grows, 0.8 s at a time in which nothing else runs.
    gc.set_threshold(*_COLLECTING)
