"""Run the service: uvicorn in one or several processes, with limits on its connections."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

from ..errors import InputError
from ..predictors.board.profile import profiles_in
from .app import create_app
from .connections import ConnectionLimits, Connections, LimitedConnection
from .logs import log, log_to_stderr
from .settings import Settings

_BACKLOG = 512  # connections that wait to be accepted
_SILENT_SECONDS = 60  # after which a process counts as hung and is replaced; starting takes seconds on a busy machine
# Named in full, because asyncio sets TCP_NODELAY only on sockets whose protocol is named. Without it each answer waits
# 40 ms for the client's delayed acknowledgement (Nagle's algorithm).
_TCP = (socket.SOCK_STREAM, socket.IPPROTO_TCP)
_SWITCH_SECONDS = 5e-4  # ten times shorter than Python's own
_OWN_FILES = 64  # files and pipes for the log, the zoo, and the process that traces


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
    or this machine does not have the address.
    """
    if settings.calibrations:
        profiles_in(settings.calibrations)  # Refused here, and not in each of the processes.
    with listen(settings) as listening:
        url = url_of(settings, listening)
        address = listening.getsockname()
        if settings.workers == 1:
            config = ServiceConfig(settings)
            _announce(url, tell)
            Server(config).run(sockets=[listening])
            return
    # The port is free. A socket that others may share would not have found out.
    with SharedPort.bound(listening.family, address) as shared, TemporaryDirectory(prefix="joulecast-") as metrics:
        config = ServiceConfig(settings.of_one_worker(), Path(metrics))
        _announce(url, tell)
        Supervisor(config, sockets=[shared]).run()


def _announce(url: str, tell: Callable[[str], object]) -> None:
    log(logging.INFO, "listening", url=url)
    tell(url)


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which learns at once that a process has died while it was asked for a sign of life.

    It keeps the process's end of their pipe open, so that it would wait for an answer until `_SILENT_SECONDS` are over.
    """

    def init_processes(self) -> None:
        """Start all processes."""
        super().init_processes()
        self._close_their_ends()

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have died or are silent."""
        super().keep_subprocess_alive()
        self._close_their_ends()

    def _close_their_ends(self) -> None:
        for process in self.processes:
            process.child_conn.close()


class SharedPort(socket.socket):
    """A port on which each process listens with a socket of its own, which is opened where this one is unpickled.

    Linux divides new connections evenly between such sockets. Of one socket that all processes share, the first process
    to wake up takes all connections that wait: 31 of 32 were counted.
    """

    @classmethod
    def bound(cls, family: int, address: Any) -> Self:
        """Reserve a port, together with this service's other processes.

        Raises InputError: The system cannot divide a port.
        """
        option = getattr(socket, "SO_REUSEPORT", None)
        if option is None:
            raise InputError(
                "this system cannot divide a port between processes",
                given=sys.platform,
                allowed="Linux",
                hint="use --workers 1, or a proxy in front of several services",
            )
        port = cls(family, *_TCP)
        port.setsockopt(socket.SOL_SOCKET, option, 1)
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(address)
        return port

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedPort.bound, (int(self.family), self.getsockname())


class ServiceConfig(Config):
    """uvicorn's settings of one process. They are pickled for each further process, which loads the application."""

    def __init__(self, settings: Settings, metrics: Path | None = None) -> None:
        self._settings = settings
        options: dict[str, Any] = {
            "host": settings.host,
            "port": settings.port,
            "workers": settings.workers,
            "ws": "none",
            "access_log": False,
            "server_header": False,
            # uvicorn would trust everybody on this machine, who could then be any number of clients.
            "proxy_headers": bool(settings.proxies),
            "forwarded_allow_ips": list(settings.proxies),
            "timeout_keep_alive": 30,
            "timeout_worker_healthcheck": _SILENT_SECONDS,
            "timeout_graceful_shutdown": int(settings.drain_seconds) or 1,
            "backlog": _BACKLOG,
        }
        super().__init__(partial(create_app, settings, metrics), factory=True, **options)

    def configure_logging(self) -> None:
        """Log to stderr as JSON. uvicorn calls this in each process."""
        log_to_stderr(self._settings.log_level)

    def load(self) -> None:
        """Make the application and the limits on its connections, in the process that uses them."""
        super().load()
        settings = self._settings
        # The event loop waits this long for a thread that computes, at each of the three system calls of a request.
        sys.setswitchinterval(_SWITCH_SECONDS)

        class Protocol(LimitedConnection):
            limits = ConnectionLimits(
                Connections(_possible_connections(settings.max_connections)),
                settings.body_seconds,
                settings.write_seconds,
            )

        self.http_protocol_class = Protocol
        starter = multiprocessing.parent_process()
        if starter is not None:
            threading.Thread(target=_stop_after, args=(starter,), daemon=True).start()


def _stop_after(starter: Any) -> None:
    """Stop this process when the one that started it has ended. It would otherwise keep the port for ever."""
    starter.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _possible_connections(most: int) -> int:
    """The requested number of connections, or fewer where the limit on open files is lower."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return most
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(1, min(most, files - _OWN_FILES))
