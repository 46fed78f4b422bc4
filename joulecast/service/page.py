"""The web page and its files, served from the folder static/."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from .problems import not_found

router = APIRouter(include_in_schema=False)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@cache
def _static() -> dict[str, tuple[bytes, str, str]]:
    """Name -> content, type and ETag. Nothing else is served, whatever path is requested."""
    content_by_name = {}
    for file in files(__package__).joinpath("static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if file.is_file() and suffix in _TYPES:
            content = file.read_bytes()
            content_by_name[file.name] = (content, _TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return content_by_name


@router.get("/")
async def index(request: Request) -> Response:
    """The page."""
    return _file(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API as a page, made of the OpenAPI document."""
    return _file(request, "docs.html")


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Serve a file of the page."""
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    if name not in _static():
        raise not_found(request.url.path)
    content, media_type, etag = _static()[name]
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
