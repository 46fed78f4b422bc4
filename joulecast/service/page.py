"""The web page and its files, served from the folder static/."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)
_FILES = StaticFiles(directory=Path(__file__).with_name("static"))


@router.get("/")
async def index(request: Request) -> Response:
    """The page."""
    return await _file(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API as a page, made of the OpenAPI document."""
    return await _file(request, "docs.html")


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Serve a file of the page."""
    return await _file(request, name)


async def _file(request: Request, name: str) -> Response:
    response = await _FILES.get_response(name, request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response
