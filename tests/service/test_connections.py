"""Clients that send no request, or never read their answer, on a real server within this process."""

import asyncio
import contextlib
import socket
import time

import pytest

pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
from uvicorn import Config
from uvicorn.server import ServerState

from joulecast.service import Settings, connections
from joulecast.service.connections import ConnectionLimits, Connections, LimitedConnection
from joulecast.service.middleware import RequestChecks

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
NEVER = b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = 16_000_000
LONG_S = 300.0


async def app(scope, receive, send):
    """Answers / with few bytes, /large with many, and /never with none."""
    if scope["path"] == "/never":
        WITHOUT_ANSWER.append(scope["client"])
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body = b"x" * (LARGE if scope["path"] == "/large" else 2)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serving(most=100, head_seconds=LONG_S, write_seconds=LONG_S, app=app):
    class Protocol(LimitedConnection):
        limits = ConnectionLimits(Connections(most), head_seconds, write_seconds)

    config, state = Config(app, log_config=None, ws="none"), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Protocol(config, state, {}), "127.0.0.1", 0)
    CLIENTS.clear()
    WITHOUT_ANSWER.clear()
    try:
        yield server.sockets[0].getsockname()[1], Protocol.limits.connections
    finally:
        server.close()
        for writer in CLIENTS:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in CLIENTS), return_exceptions=True)
        while state.connections:
            await asyncio.sleep(0.01)


CLIENTS = []  # Connections that are closed at the end of a test.
WITHOUT_ANSWER = []  # Addresses of the clients that have asked for /never.


async def connect(port, address="127.0.0.1"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    CLIENTS.append(writer)
    return reader, writer


async def answer(reader, writer, request=REQUEST):
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


async def closed(reader):
    """Whether a connection is closed; waits for it as long as the test may take."""
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


async def happens(claim):
    """Wait until a claim holds."""
    while not claim():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("said", [b"", b"GET /v1/hea", REQUEST[:-2]])
@pytest.mark.parametrize("good", [0, 1])
async def test_a_head_has_a_deadline(said, good):
    async with serving(head_seconds=0.2) as (port, connections):
        reader, writer = await connect(port)
        for _ in range(good):
            assert await answer(reader, writer) == b"xx"
            # Without any byte of the next request, uvicorn's own timeout would end the connection.
            said = said or b"G"
        writer.write(said)
        assert await closed(reader)
        assert len(connections) == 0


async def test_a_slow_head_is_as_late_as_none():
    """Each byte arrives within the deadline, but the whole head does not."""
    async with serving(head_seconds=0.3) as (port, _):
        reader, writer = await connect(port)

        async def drip():
            for _ in range(10_000):
                writer.write(b"G")
                await asyncio.sleep(0.05)

        dripping = asyncio.ensure_future(drip())
        assert await closed(reader)
        dripping.cancel()


async def test_an_answer_may_take_its_time():
    async with serving(head_seconds=0.3) as (port, _):
        reader, writer = await connect(port)
        writer.write(NEVER)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.6)


async def test_a_client_that_never_reads_is_disconnected():
    async with serving(write_seconds=0.2) as (port, connections):
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", port))
            raw.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
            await happens(lambda: len(connections) == 1)
            await happens(lambda: len(connections) == 0)


async def test_a_client_that_reads_slowly_is_served():
    """An answer may take many deadlines, if the client reads enough bytes within each of them."""
    async with serving(write_seconds=1.0) as (port, _):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            taken, started_s = 0, time.monotonic()
            while data := await asyncio.to_thread(raw.recv, 100_000):
                taken += len(data)
                await asyncio.sleep(0.008)
        assert taken > LARGE
        assert time.monotonic() - started_s > 1.0


async def test_too_many_connections_close_those_of_the_client_with_most():
    async with serving(most=10) as (port, connections):
        honest = await connect(port)
        assert await answer(*honest) == b"xx"
        many = [await connect(port, "127.0.0.2") for _ in range(30)]
        late = await connect(port)
        assert await answer(*late) == b"xx"
        assert await answer(*honest) == b"xx"
        assert len(connections) == 10
        gone = [reader for reader, _ in many if reader.at_eof() or reader.exception()]
        assert len(gone) == 22


async def test_connections_in_use_are_closed_only_to_admit_other_clients():
    async with serving(most=5) as (port, connections):
        many = [await connect(port, "127.0.0.2") for _ in range(5)]
        for _, writer in many:
            writer.write(NEVER)
        await happens(lambda: len(WITHOUT_ANSWER) == 5)
        # Another connection of this client is refused. One of another client takes the place of the oldest.
        more = await connect(port, "127.0.0.2")
        assert await closed(more[0])
        assert not any(reader.at_eof() for reader, _ in many)
        other = await connect(port)
        assert await answer(*other) == b"xx"
        assert await closed(many[0][0])
        assert len(connections) == 5


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def reading(scope, receive, send):
    """Reads the whole body of a request, and answers with its length."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            WITHOUT_ANSWER.append(scope["client"])
            return
        body, more = body + message["body"], message["more_body"]
    said = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


@pytest.mark.parametrize(("chunk", "count"), [(b"1\r\nx\r\n", 3_000), (b"64\r\n" + b"x" * 100 + b"\r\n", 9_000)])
async def test_a_body_may_come_in_chunks(chunk, count):
    async with serving(app=reading) as (port, _):
        found = await answer(*await connect(port), CHUNKED + chunk * count + b"0\r\n\r\n")
        assert int(found) == count * chunk.count(b"x")


@pytest.mark.parametrize(
    "body", [b"1\r\nx\r\n" * 20_000, b"1\r\nx\r\nno number\r\n\r\n"], ids=["small chunks", "no chunk"]
)
@pytest.mark.parametrize("application", [app, reading], ids=["answered before", "read"])
async def test_a_body_that_cannot_be_read_ends_its_connection_without_an_error(body, application, caplog):
    """A second of the event loop went to 100,000 chunks of a byte, and two answers to one request were an error."""
    async with serving(app=application) as (port, _):
        reader, writer = await connect(port)
        writer.write(CHUNKED + body)
        with contextlib.suppress(ConnectionError):
            heads = (await reader.read()).count(b"HTTP/1.1 ")
            assert heads <= 1
    warned = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]  # INFO: the answers.
    assert warned == ["Invalid HTTP request received."]


@pytest.mark.parametrize(
    ("application", "sent"),
    [(app, REQUEST * 10), (reading, CHUNKED + b"1\r\nx\r\n" * 300 + b"0\r\n\r\n")],
    ids=["requests behind each other", "small chunks"],
)
async def test_many_connections_leave_turns_to_others(application, sent, monkeypatch):
    """Much is sent on 100 connections of one client; another client's request is answered after little of it."""
    order, parsed = [], []
    next_event = connections._Requests.next_event
    monkeypatch.setattr(connections._Requests, "next_event", lambda self: parsed.append(0) or next_event(self))

    async def answered(scope, receive, send):
        await application(scope, receive, send)
        order.append((scope["client"][0], len(parsed)))

    checked = RequestChecks(answered, Settings(log_level="error"), lambda *_: None)
    async with serving(300, app=checked) as (port, _):
        other = await connect(port, "127.0.0.3")
        writers = [(await connect(port, "127.0.0.2"))[1] for _ in range(100)]
        for writer in writers:
            writer.write(sent)
        for _ in range(3):
            await asyncio.sleep(0)
        await answer(*other)
        place = [client for client, _ in order].index("127.0.0.3")
        assert place < 50
        assert order[place][1] < 15_000  # of 31,000 events in small chunks
