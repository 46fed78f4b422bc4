"""The HTTP service and its web page: `joulecast serve`. Needs the extra `service` (fastapi, uvicorn)."""

from .settings import Settings

__all__ = ["Settings"]
