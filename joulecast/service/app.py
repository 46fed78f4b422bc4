"""The application: routes, page, errors, and background tasks; and uvicorn, which runs it in one process.

A proxy in front of several divides requests among them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from uvicorn import Config, Server

from .. import __version__
from ..errors import InputError, JoulecastError, RefusalError, UnknownNameError
from ..hardware import find_gpu
from ..operations.operation import MODES
from ..predictors.board.profile import profiles_in
from ..system.caches import RESULTS, BoundedCache
from ..zoo import find_predictor
from . import answers, caches, listings, logs, middleware, problems, routes, schemas, workers
from .settings import Settings

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
    state.answers = answers.Answers(settings)
    state.cache = BoundedCache(settings.cached_answers_bytes)
    state.results = RESULTS
    state.workers = workers.Workers(settings.threads, max(settings.threads, _AT_ONCE), settings.max_waiting)
    state.ready, state.damage, state.generation, state.reloads = False, None, "", 0
    state.metrics = logs.Metrics(state)
    for router in _ROUTERS:
        app.include_router(router)
    for refusal in (JoulecastError, RequestValidationError, HTTPException):
        app.add_exception_handler(refusal, _refused)
    app.add_middleware(middleware.RequestChecks, settings=settings, observe=state.metrics.observe)
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


def _describe(app: FastAPI) -> None:
    """Add to the OpenAPI document what FastAPI cannot derive from the code."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = make()
        document["components"]["schemas"]["Problem"] = schemas.SCHEMAS["Problem"].model_json_schema()
        if app.state.settings.tokens:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            for path in middleware.OPEN_PATHS & document["paths"].keys():
                document["paths"][path]["get"]["security"] = []
        app.openapi_schema = document
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own documentation says so


async def _refused(request: Request, error: Exception) -> Response:
    """The answer to what the library, the schema of a question or the table of routes refuses."""
    status: dict[str, Any] = {}
    if isinstance(error, RequestValidationError):
        error = problems.invalid(error)
    elif isinstance(error, HTTPException):
        error = _without_route(request, error)
    elif isinstance(error, UnknownNameError) and request.method == "GET":  # The name is in the path.
        status = {"status": 404}
    request_id = request.scope.get("state", {}).get("request_id")
    return problems.problem_response(cast(JoulecastError, error), request_id, **status)


def _without_route(request: Request, error: HTTPException) -> RefusalError:
    path, paths = request.url.path, "/v1/openapi.json lists all paths"
    if error.status_code == 404:
        return RefusalError(404, "not-found", "there is nothing at this path", given=path, hint=paths)
    if error.status_code == 405:
        what, allowed = "this path does not support this method", (error.headers or {})["Allow"]
        refused = RefusalError(405, "method", what, given=request.method, allowed=allowed)
        refused.headers["Allow"] = allowed
        return refused
    hint = f"{paths}, and what each takes"
    return RefusalError(error.status_code, "http", str(error.detail), given=path, hint=hint)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    state.generation = caches.generation()
    tasks = [asyncio.create_task(each) for each in (_warm(app), _tidy(), caches.watch(state))]
    yield
    state.ready = False
    for task in tasks:
        task.cancel()
    state.workers.close()
    state.answers.networks.tracer.close()


async def _tidy() -> None:
    """Give memory back to the system after large requests, because the allocator would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # musl has none
    trimmed_bytes = logs.resident_bytes()
    while trim is not None:
        await asyncio.sleep(_TIDY_SECONDS)
        if logs.resident_bytes() > trimmed_bytes + _TIDY_BYTES:
            await asyncio.to_thread(trim, 0)
            trimmed_bytes = logs.resident_bytes()


async def _warm(app: FastAPI) -> None:
    """Load the predictors before the first request; those for inference first, because most requests need them."""
    for mode in MODES:
        for gpu in caches.WARMED:
            try:
                await app.state.workers.run(partial(find_predictor, find_gpu(gpu), mode), seconds=_WARMING_SECONDS)
            except JoulecastError as error:
                # No reason to stop: other predictors work, and requests for this one get the same error.
                app.state.damage = str(error)
                logs.log(logging.ERROR, "predictor", gpu=gpu, mode=mode, error=str(error))
        if not app.state.ready:
            app.state.ready = True
            logs.log(logging.INFO, "ready")
    # Everything loaded so far stays in memory. Scanning it for garbage would delay answers by tens of milliseconds.
    gc.collect()
    gc.freeze()
    # By default a large answer is scanned again and again while it grows, 0.8 s at a time in which nothing else runs.
    gc.set_threshold(*_COLLECTING)


_BACKLOG = 512  # connections that wait to be accepted
# Named in full, because asyncio sets TCP_NODELAY only on sockets whose protocol is named. Without it each answer waits
# 40 ms for the client's delayed acknowledgement (Nagle's algorithm).
_TCP = (socket.SOCK_STREAM, socket.IPPROTO_TCP)
_SWITCH_SECONDS = 5e-4  # ten times shorter than Python's own


def listen(settings: Settings) -> socket.socket:
    """Reserve the port, so that a port that is taken is an error before anything is loaded.

    Raises InputError: the port is taken, or this machine does not have the address.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, *_TCP)
    try:
        # A port stays reserved for a minute after its last connection, which must not stop a restart.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        taken = error.errno == errno.EADDRINUSE
        raise InputError(
            "another program listens on this port already" if taken else "the service cannot listen there",
            given=f"{settings.host}:{settings.port}: {error.strerror or error}",
            allowed="a free port; 0 for any" if taken else "an address of this machine, and a port that you may open",
            hint="choose another with --port; or is the service running already?"
            if taken
            else "choose others with --host and --port",
        ) from error
    return listening


def url_of(settings: Settings, listening: socket.socket) -> str:
    """URL of the page, as it is opened on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  (compared, not used)
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(settings: Settings, tell: Callable[[str], object]) -> None:
    """Run the service until a signal to stop.

    `tell` is called with the URL of the page as soon as connections are accepted. Raises InputError: the port is taken,
    or this machine does not have the address; or a calibration is damaged.
    """
    with listen(settings) as listening:
        config = Config(
            create_app(settings),
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # uvicorn would trust everybody on this machine, who could then be any number of clients.
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            limit_concurrency=settings.max_connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(settings.drain_seconds) or 1,
        )
        logs.log_to_stderr(settings.log_level)
        # The event loop waits this long for a thread that computes, at each of the three system calls of a request.
        sys.setswitchinterval(_SWITCH_SECONDS)
        url = url_of(settings, listening)
        logs.log(logging.INFO, "listening", url=url)
        tell(url)
        Server(config).run(sockets=[listening])
