"""The paths that list GPUs, models and predictors, that report the state of the service, and the web page."""

from __future__ import annotations

import asyncio
import os
import pathlib
import platform
from importlib.util import find_spec
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from .. import __version__
from ..errors import RefusalError
from ..zoo import entries
from . import listings, metrics, schemas
from .answering import PROBLEMS, answering, ask, computed, found, json_bytes, naming
from .caches import CachedRoute
from .reload import damage
from .validation import checked_gpu

listed = APIRouter(prefix="/v1", route_class=CachedRoute)
system = APIRouter(prefix="/v1", responses=PROBLEMS)


@listed.get("/gpus", **answering(schemas.GpusAnswer), tags=["catalogue"])
async def gpus(request: Request) -> Response:
    """List the GPU catalogue, with what was measured on each GPU."""
    return Response(json_bytes(listings.all_gpus()), media_type="application/json")


@listed.get("/execution", **answering(schemas.ExecutionAnswer), tags=["catalogue"])
async def execution(request: Request) -> Response:
    """List how a network can be run, the hosts and engines that are known by name, and grids by country."""
    return Response(json_bytes(listings.ways_to_run()), media_type="application/json")


@listed.get("/models", **answering(schemas.ModelsAnswer), tags=["models"])
async def models(
    request: Request, search: Annotated[str, Query(max_length=100, description="Part of a name.")] = ""
) -> Response:
    """List the models that have a name and need no torch."""
    others = request.app.state.settings.extraction and find_spec("torch") is not None
    listed = await computed(request, lambda _: listings.all_models(search, others=others))
    return Response(json_bytes(listed), media_type="application/json")


@listed.get("/zoo", **answering(schemas.ZooAnswer), tags=["catalogue"])
async def zoo(request: Request) -> Response:
    """List the names of the predictors."""
    return Response(json_bytes({"entries": entries()}), media_type="application/json")


@listed.get("/gpus/{name}", **naming(schemas.GpuAnswer), tags=["catalogue"])
async def gpu(request: Request, name: Annotated[str, Path(max_length=100, examples=["A30"])]) -> Response:
    """All figures of a GPU, with their sources."""
    to_dict = listings.one_gpu
    return await found(ask(request, None, lambda _: checked_gpu(name), to_dict))


@listed.get("/zoo/{gpu}/{entry}", **naming(schemas.CardAnswer), tags=["catalogue"])
async def card(
    request: Request,
    gpu: Annotated[str, Path(max_length=100, examples=["a30"])],
    entry: Annotated[str, Path(max_length=100, examples=["forest-inference"])],
) -> Response:
    """The model card of a predictor."""
    return await found(ask(request, None, lambda _: listings.zoo_card(f"{gpu}/{entry}"), lambda found: found))


@system.get("/health", response_model=schemas.HealthAnswer, tags=["system"])
async def health() -> dict[str, str | int]:
    """Answer 200 as long as the process runs, with its number."""
    return {"status": "ok", "process": os.getpid()}


@system.get("/ready", response_model=schemas.HealthAnswer, tags=["system"])
async def ready(request: Request) -> dict[str, str | int]:
    """Whether the predictors are loaded and whole; 503 until then, and where questions would be answered with 503."""
    if not request.app.state.ready:
        raise RefusalError(
            503, "starting", "the predictors are being loaded", hint="ask again in a second", retry_after_s=1
        )
    state = request.app.state
    if state.damage is not None:
        # The entry may have been restored since.
        state.damage = await asyncio.to_thread(damage)
    if state.damage is not None:
        raise RefusalError(503, "zoo", "a predictor is damaged", given=state.damage, hint="`joulecast zoo verify`")
    return {"status": "ready", "process": os.getpid()}


@system.get("/version", response_model=schemas.VersionAnswer, tags=["system"])
async def version(request: Request) -> dict[str, str]:
    """The version of joulecast, and the state of the predictors."""
    return {
        "joulecast": __version__,
        "python": platform.python_version(),
        "generation": request.app.state.cache.generation,
    }


usual = APIRouter(include_in_schema=False)
"""What is asked for without a version: numbers for Prometheus, the OpenAPI document, and the page with its files."""


@usual.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@usual.get("/metrics")
@system.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    tags=["system"],
)
async def prometheus(request: Request) -> Response:
    """Counters for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=metrics.MEDIA_TYPE)


_FILES = StaticFiles(directory=pathlib.Path(__file__).with_name("static"))


@usual.get("/")
async def index(request: Request) -> Response:
    """The page."""
    return await _file(request, "index.html")


@usual.get("/docs")
async def docs(request: Request) -> Response:
    """The API as a page, made of the OpenAPI document."""
    return await _file(request, "docs.html")


@usual.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Serve a file of the page."""
    return await _file(request, name)


async def _file(request: Request, name: str) -> Response:
    response = await _FILES.get_response(name, request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response
