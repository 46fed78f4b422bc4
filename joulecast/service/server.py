"""Run the service with uvicorn, in one process. A proxy in front of several divides requests among them."""

from __future__ import annotations

import errno
import logging
import socket
import sys
from collections.abc import Callable

from uvicorn import Config, Server

from ..errors import InputError
from .app import create_app
from .logs import log, log_to_stderr
from .settings import Settings

_BACKLOG = 512  # connections that wait to be accepted
# Named in full, because asyncio sets TCP_NODELAY only on sockets whose protocol is named. Without it each answer waits
# 40 ms for the client's delayed acknowledgement (Nagle's algorithm).
_TCP = (socket.SOCK_STREAM, socket.IPPROTO_TCP)
_SWITCH_SECONDS = 5e-4  # ten times shorter than Python's own


def listen(settings: Settings) -> socket.socket:
    """Reserve the port, so that a port that is taken is an error before anything is loaded.

    Raises:
        InputError: The port is taken, or this machine does not have the address.
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

    `tell` is called with the URL of the page as soon as connections are accepted. Raises InputError: The port is taken,
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
        log_to_stderr(settings.log_level)
        # The event loop waits this long for a thread that computes, at each of the three system calls of a request.
        sys.setswitchinterval(_SWITCH_SECONDS)
        url = url_of(settings, listening)
        log(logging.INFO, "listening", url=url)
        tell(url)
        Server(config).run(sockets=[listening])
