"""The paths that list GPUs, models and predictors, that report the state of the service, and the web page."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import platform
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from prometheus_client import generate_latest
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from .. import __version__
from ..errors import RefusalError, unknown_name
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..extraction.templates import store
from ..generation.engines import ENGINES
from ..generation.images.pipelines import PIPELINES
from ..hardware import GPU
from ..hardware import gpus as catalogue
from ..hardware.host import USUAL, hosts
from ..predictors.networks.composition import EXECUTIONS
from ..queries.objectives import grids
from ..system.resources import shipped
from ..zoo import entries
from ..zoo.cards import measured_gpus
from ..zoo.files import StoredEntry
from ..zoo.rendering import markdown
from . import caches, logs, routes, schemas, validation


def _shown(value: object, schema: str) -> dict[str, Any]:
    """What a value has of the fields of a schema."""
    return {name: getattr(value, name) for name in schemas.SCHEMAS[schema].model_fields if hasattr(value, name)}


def _gpu_summary(gpu: GPU) -> dict[str, Any]:
    """A GPU as a row of the catalogue."""
    measured = measured_gpus()
    return {
        **_shown(gpu, "GpuSummary"),
        "short_name": gpu.aliases[0],
        "precisions": list(gpu.peak_flops),
        "measured": str(measured[gpu.name]) if gpu.name in measured else None,
        "predictors": [entry for entry in entries() if entry.startswith(f"{gpu.slug}/")],
    }


_FAMILIES = {4: "image", 2: "tokens"}
"""Number of dimensions of a model's first input -> what it takes; others take features."""


@cache
def _models() -> tuple[dict[str, Any], ...]:
    rows = []
    for name, model in ((name, store.load(name)) for name in store.names()):
        if model is not None:
            title, shape = next(iter(model.inputs.items()))
            family, titles = _FAMILIES.get(len(shape), "features"), [title] if title else []
            rows.append({"name": name, "family": family, "input_shape": list(model.example), "input_names": titles})
    return tuple(rows)


listed = APIRouter(prefix="/v1", route_class=caches.CachedRoute)
system = APIRouter(prefix="/v1", responses=routes.PROBLEMS)


@listed.get("/gpus", **routes.answering("GpusAnswer"), tags=["catalogue"])
async def gpus() -> dict[str, Any]:
    """List the GPU catalogue, with what was measured on each GPU."""
    return {"gpus": [_gpu_summary(gpu) for gpu in catalogue().values()]}


@listed.get("/execution", **routes.answering("ExecutionAnswer"), tags=["catalogue"])
async def execution() -> dict[str, Any]:
    """List how a network can be run, the hosts and engines that are known by name, and grids by country."""
    return {
        "executions": list(EXECUTIONS),
        "hosts": [_shown(host, "HostAnswer") for host in (USUAL, *hosts().values())],
        "engines": [engine.name for engine in ENGINES.values() if engine.fused],
        "grids": [_shown(grid, "GridAnswer") for grid in grids().values()],
    }


@listed.get("/zoo", **routes.answering("ZooAnswer"), tags=["catalogue"])
async def zoo() -> dict[str, Any]:
    """List the names of the predictors."""
    return {"entries": entries()}


@listed.get("/calibrations", **routes.answering("CalibrationsAnswer"), tags=["catalogue"])
async def calibrations(request: Request) -> dict[str, Any]:
    """List the calibrations that requests may name."""
    rows = [
        {"name": name, "gpu": profile.gpu, "sha256": profile.sha256, "about": str(profile)}
        for name, profile in request.app.state.calibrations.items()
    ]
    return {"calibrations": rows}


@listed.get("/scoreboard", **routes.answering("ScoreboardAnswer"), tags=["catalogue"])
async def scoreboard() -> dict[str, Any]:
    """Published runs beside predictions, a row for each source, GPU and task."""
    return {"rows": json.loads((shipped("zoo") / "scoreboard.json").read_text("utf-8"))}


@listed.get("/models", **routes.answering("ModelsAnswer"), tags=["models"])
async def models(
    request: Request, search: Annotated[str, Query(max_length=100, description="Part of a name.")] = ""
) -> dict[str, Any]:
    """List the models that have a name and need no torch."""
    wanted = search.lower()

    def matching(_: object) -> dict[str, Any]:
        rows = [row for row in _models() if wanted in row["name"]]
        return {
            # Names that begin with it come first.
            "models": sorted(rows, key=lambda row: not row["name"].startswith(wanted)),
            "language_models": [name for name in LANGUAGE_MODELS if wanted in name],
            "pipelines": [name for name in PIPELINES if wanted in name],
            "others": request.app.state.settings.extraction and find_spec("torch") is not None,
        }

    return await routes.computed(request, matching)


@listed.get("/gpus/{name}", **routes.answering("GpuAnswer", named=True), tags=["catalogue"])
async def gpu(request: Request, name: Annotated[str, Path(max_length=100, examples=["A30"])]) -> Response:
    """All figures of a GPU, with their sources."""

    def figures(gpu: GPU) -> dict[str, Any]:
        return {**asdict(gpu), **_gpu_summary(gpu), "sources": list(gpu.sources)}

    return await routes.ask(request, None, lambda _: validation.checked_gpu(name), figures)


@listed.get("/zoo/{gpu}/{entry}", **routes.answering("CardAnswer", named=True), tags=["catalogue"])
async def card(
    request: Request,
    gpu: Annotated[str, Path(max_length=100, examples=["a30"])],
    entry: Annotated[str, Path(max_length=100, examples=["forest-inference"])],
) -> Response:
    """The model card of a predictor."""

    def card_of(name: str) -> dict[str, Any]:
        if name not in (names := entries()):
            raise unknown_name("predictor", name, names)
        card = StoredEntry.of(shipped("zoo") / name).card
        return {**card, "name": name, "markdown": markdown(card)}

    return await routes.ask(request, None, lambda _: card_of(f"{gpu}/{entry}"), lambda card: card)


@system.get("/health", response_model=schemas.SCHEMAS["HealthAnswer"], tags=["system"])
async def health() -> dict[str, str | int]:
    """Answer 200 as long as the process runs, with its number."""
    return {"status": "ok", "process": os.getpid()}


@system.get("/ready", response_model=schemas.SCHEMAS["HealthAnswer"], tags=["system"])
async def ready(request: Request) -> dict[str, str | int]:
    """Whether the predictors are loaded and whole; 503 until then, and where questions would be answered with 503."""
    if not request.app.state.ready:
        raise RefusalError(
            503, "starting", "the predictors are being loaded", hint="ask again in a second", retry_after_s=1
        )
    state = request.app.state
    if state.damage is not None:
        # The entry may have been restored since.
        state.damage = await asyncio.to_thread(caches.damage)
    if state.damage is not None:
        raise RefusalError(503, "zoo", "a predictor is damaged", given=state.damage, hint="`joulecast zoo verify`")
    return {"status": "ready", "process": os.getpid()}


@system.get("/version", response_model=schemas.SCHEMAS["VersionAnswer"], tags=["system"])
async def version(request: Request) -> dict[str, str]:
    """The version of joulecast, and the state of the predictors."""
    return {
        "joulecast": __version__,
        "python": platform.python_version(),
        "generation": request.app.state.generation,
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
    return Response(generate_latest(request.app.state.metrics.registry), media_type=logs.MEDIA_TYPE)


_FILES = StaticFiles(directory=pathlib.Path(__file__).with_name("static"))


@usual.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Serve a file of the page."""
    response = await _FILES.get_response(name, request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response


_PAGES = {"/": "index.html", "/scoreboard": "scoreboard.html", "/docs": "docs.html"}


async def page(request: Request) -> Response:
    """Serve a page."""
    return await static(request, _PAGES[request.scope["route"].path])


for _path in _PAGES:
    usual.get(_path)(page)
