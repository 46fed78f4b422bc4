"""Run the service: uvicorn with limits on its connections."""

from __future__ import annotations

from typing import Any

from uvicorn import Config, Server

from .app import create_app
from .connections import ConnectionLimits, Connections, LimitedConnection
from .logs import log_to_stderr
from .settings import Settings

_OWN_FILES = 64  # files and pipes for the log, the zoo, and the process that traces


def make_server(settings: Settings) -> Server:
    """Make a server. Its `run()` returns after a signal to stop."""

    class Protocol(LimitedConnection):
        limits = ConnectionLimits(
            Connections(_possible_connections(settings.max_connections)), settings.body_seconds, settings.write_seconds
        )

    log_to_stderr(settings.log_level)
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "http": Protocol,
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": int(settings.drain_seconds) or 1,
        "backlog": 512,
    }
    return Server(Config(create_app(settings), **options))


def _possible_connections(most: int) -> int:
    """The requested number of connections, or fewer where the limit on open files is lower."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return most
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(1, min(most, files - _OWN_FILES))
