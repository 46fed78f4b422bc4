"""Limits on connections: deadlines for sending a request's head and for reading the answer, and a maximum number.

uvicorn's own timeout applies only between two requests. A client that sends half a head, or never reads its answer,
would keep its connection forever. As many such clients as there are file descriptors would stop the service.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

_LEAST_BYTES = 64_000  # bytes of an answer that a client must read within one deadline


class Connections:
    """All open connections. Where there are too many, the client with the most connections loses one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_client: dict[str, dict[LimitedConnection, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_client.values()))

    def admit(self, new: LimitedConnection) -> None:
        """Add a connection. If there are too many, close an idle one of the client with the most connections."""
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
        """Forget a connection that is closed or closing."""
        mine = self._by_client.get(connection.address, {})
        mine.pop(connection, None)
        if not mine:
            self._by_client.pop(connection.address, None)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of a connection.

    Args:
        connections: All open connections.
        head_seconds: Longest time from the first byte of a request's head to its last.
        write_seconds: Longest time in which a client reads nothing of its answer.
    """

    connections: Connections
    head_seconds: float
    write_seconds: float


class LimitedConnection(H11Protocol):
    """uvicorn's HTTP protocol with deadlines. A subclass sets the limits."""

    limits: ConnectionLimits
    address = ""
    _head: asyncio.TimerHandle | None = None
    _write: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the head of a request has arrived and its answer is not yet complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        # Writing is paused as long as anything at all is left to send, so that reading can be timed.
        transport.set_write_buffer_limits(high=0)
        self._expect_head()
        self.limits.connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self.limits.connections.remove(self)
        for timer in (self._head, self._write):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes that have arrived. The deadline of a request's head is not extended by further bytes."""
        super().data_received(data)
        if not self.is_answering:
            self._expect_head()
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        """Start the deadline for the client to read."""
        super().pause_writing()
        if self._write is None:
            self._expect_reading()

    def resume_writing(self) -> None:
        """Stop the deadline, because the client has read everything."""
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
