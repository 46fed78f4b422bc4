"""Connections of clients: how many there may be, how long they may wait, and how much of them is parsed at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from .turns import Turns

_LEAST_BYTES = 64_000  # bytes of an answer that a client must read within one deadline
_MOST_LINES = 128  # that are parsed at once; a field of a head and half a chunk of a body take 6 us each
_MOST_CHUNKS, _CHUNK_BYTES = 4_000, 64  # chunks of a body that may be as small as they like; bytes of others on average


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
        turns: Turns of clients who send many lines.
    """

    connections: Connections
    head_seconds: float
    write_seconds: float
    turns: Turns = field(default_factory=Turns)


class _Requests(h11.Connection):
    """The events of a connection. A body in very many small chunks is refused: each takes as long as a large one."""

    _chunks, _bytes = 0, 0

    def next_event(self) -> Any:
        """The next event. Raises RemoteProtocolError: The client sent no HTTP, or far too many chunks."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks, self._bytes = self._chunks + 1, self._bytes + len(event.data)
            if self._chunks > _MOST_CHUNKS + self._bytes / _CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks of this body are too small")
        return event


class _Flow(FlowControl):
    """Whether a connection is read. While bytes of it wait for their turn it is not, whatever uvicorn says."""

    waits = False

    def resume_reading(self) -> None:
        """Read on, unless bytes wait."""
        if not self.waits:
            super().resume_reading()


class LimitedConnection(H11Protocol):
    """uvicorn's HTTP protocol with deadlines. A subclass sets the limits."""

    limits: ConnectionLimits
    flow: _Flow
    address = ""
    _unread = b""
    _head: asyncio.TimerHandle | None = None
    _write: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the head of a request has arrived and its answer is not yet complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.conn = _Requests(h11.SERVER)
        self.flow = _Flow(transport)
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
        """Parse bytes that have arrived: few lines at once, and more when it is this client's turn."""
        self._unread += data
        if not self.flow.waits:
            self._parse()

    def _parse(self) -> None:
        """Parse some lines. The deadline of a request's head is not extended by further bytes."""
        if self.transport.is_closing():
            return
        data, rest = self._unread, b""
        if data.count(b"\n") > _MOST_LINES:
            rest = data.split(b"\n", _MOST_LINES)[-1]
        self._unread = rest
        self.flow.waits = bool(rest)
        if rest:
            self.flow.pause_reading()
            self.limits.turns.give(self.address, self._parse)
        else:
            self.flow.resume_reading()
        super().data_received(data[: len(data) - len(rest)])
        if not self.is_answering:
            self._expect_head()
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. A request whose body it is ends as if its client had left."""
        if self.is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # An answer has begun, or was the last.
            self.transport.close()

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
