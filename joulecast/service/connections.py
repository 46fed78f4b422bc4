"""Connections that may not stay for nothing: deadlines for each request's head and for taking the answer, and a cap.

uvicorn's own timeout runs between two requests only. A client that sends half a head, or never reads its answer, would
keep its connection for ever, and with as many of them as there are file descriptors the service would stop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

_LEAST_BYTES = 64_000  # of an answer, that a client takes within one deadline


class Connections:
    """All open connections; where there are too many, the client that has most of them loses one.

    Args:
        most: Connections at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_client: dict[str, dict[LimitedConnection, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_client.values()))

    def admit(self, new: LimitedConnection) -> None:
        """Add a connection, and close another one where that is too many: of the same client one that is idle."""
        mine = self._by_client.setdefault(new.address, {})
        mine[new] = None
        if len(self) <= self._most:
            return
        most = max(self._by_client.values(), key=len)
        idle = (connection for connection in most if not connection.is_answering)
        dropped = next(idle, new if most is mine else next(iter(most)))
        self.remove(dropped)
        dropped.transport.abort()

    def remove(self, connection: LimitedConnection) -> None:
        """Forget a connection that is closed, or is about to be."""
        mine = self._by_client.get(connection.address, {})
        mine.pop(connection, None)
        if not mine:
            self._by_client.pop(connection.address, None)


@dataclass(frozen=True)
class ConnectionLimits:
    """What a connection may take.

    Args:
        connections: All open connections.
        head_seconds: Within which the head of a request must have come, from its first byte on.
        write_seconds: Within which a client must take some of the answer, or all that is left of it.
    """

    connections: Connections
    head_seconds: float
    write_seconds: float


class LimitedConnection(H11Protocol):
    """HTTP as uvicorn speaks it, with deadlines; a subclass names its limits."""

    limits: ConnectionLimits
    address = ""
    _head: asyncio.TimerHandle | None = None
    _write: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the head of a request has come and its answer is not yet complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        # Paused as long as anything is left to send, however little.
        transport.set_write_buffer_limits(high=0)
        self._expect_head()
        self.limits.connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self.limits.connections.remove(self)
        for timer in (self._head, self._write):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come; the head that it belongs to has a deadline, which more of it does not move."""
        super().data_received(data)
        if not self.is_answering:
            self._expect_head()
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        """Expect the client to take what waits to be sent."""
        super().pause_writing()
        if self._write is None:
            self._expect_reading()

    def resume_writing(self) -> None:
        """Everything was taken."""
        super().resume_writing()
        if self._write is not None:
            self._write.cancel()
            self._write = None

    def _expect_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.limits.head_seconds, self.transport.abort)

    def _expect_reading(self) -> None:
        left = self.transport.get_write_buffer_size()

        def check() -> None:
            if left - self.transport.get_write_buffer_size() < _LEAST_BYTES:
                self.transport.abort()
            else:
                self._expect_reading()

        self._write = self.loop.call_later(self.limits.write_seconds, check)
