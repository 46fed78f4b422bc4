"""Run the service: uvicorn with limits on its connections."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

from uvicorn import Config, Server

from ..errors import InputError
from .app import create_app
from .connections import ConnectionLimits, Connections, LimitedConnection
from .logs import log, log_to_stderr
from .settings import Settings

_BACKLOG = 512  # connections that wait to be accepted
_OWN_FILES = 64  # files and pipes for the log, the zoo, and the process that traces


def listen(settings: Settings) -> socket.socket:
    """Reserve the port, so that a port that is taken is an error before anything is loaded.

    Raises:
        InputError: The port is taken, or this machine does not have the address.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
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
            given=f"{settings.host}:{settings.port}",
            allowed="a free port; 0 for any" if taken else "an address of this machine, and a port that you may open",
            hint="choose another with --port; or is the service running already?" if taken else str(error),
        ) from error
    return listening


def url_of(settings: Settings, listening: socket.socket) -> str:
    """URL of the page, as it is opened on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  (compared, not used)
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(settings: Settings, tell: Callable[[str], object]) -> None:
    """Run the service until a signal to stop.

    Args:
        settings: Limits and options of the service.
        tell: Function that is called with the URL of the page as soon as connections are accepted.

    Raises:
        InputError: The port is taken, or this machine does not have the address.
    """
    with listen(settings) as listening:
        server = _server(settings)
        url = url_of(settings, listening)
        log(logging.INFO, "listening", url=url)
        tell(url)
        server.run(sockets=[listening])


def _server(settings: Settings) -> Server:

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
        "backlog": _BACKLOG,
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
