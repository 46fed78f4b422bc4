"""The same answers over HTTP, with a page: `joulecast serve`. Needs the extra `service` (fastapi, uvicorn)."""

from .settings import Settings

__all__ = ["Settings"]
