"""Run the service: uvicorn with limits on connections that say nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import create_app
from .logs import log_to_stderr
from .settings import Settings


class PatientForAWhile(H11Protocol):
    """HTTP as uvicorn speaks it, but a connection whose first request does not come is closed.

    uvicorn's own timeout begins after the first answer, so half-open connections would stay for ever.
    """

    first_request_seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._first = self.loop.call_later(self.first_request_seconds, self._close_unless_asked)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._first.cancel()
        super().connection_lost(exc)

    def _close_unless_asked(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def make_server(settings: Settings) -> Server:
    """A server that is ready to run; `server.run()` returns after a signal to stop."""

    class Protocol(PatientForAWhile):
        first_request_seconds = settings.body_seconds

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
