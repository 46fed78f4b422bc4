"""Clients that do harm to a service, from addresses of their own; benchmarks/service.py asks beside them.

Each kind is one attack: memory (questions with megabytes of paths), unknown (models that must be traced, and leaving
before the answer), slow (heads that never end, answers that nobody reads), methods (any text as a method).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import Awaitable, Callable


async def _connection(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


def _post(path: str, question: object) -> bytes:
    body = json.dumps(question).encode()
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


async def memory(port: int, address: str) -> None:
    """Send requests of 3 MB, each with other module paths in its dropped work."""
    for number in itertools.count():
        paths = [f"{number}.{i}.{'p' * 900}" for i in range(300)]
        dropped = [{"name": f"d{j}", "count": 1, "module_paths": paths, "reason": "r"} for j in range(10)]
        relu = {"kind": "relu", "input_shapes": [[32, 64]]}
        reader, writer = await _connection(port, address)
        writer.write(_post("predict", {"operations": [relu], "dropped": dropped, "gpu": "A30"}))
        await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def unknown(port: int, address: str) -> None:
    """Request three models per second that no template covers, and close the connection before the answer."""
    rng = random.Random(address)
    while True:
        _, writer = await _connection(port, address)
        shape = [rng.randint(1, 64), rng.randint(8, 500)]
        writer.write(_post("predict", {"model": "plain_bert_base", "input_shape": shape, "gpu": "A30"}))
        await asyncio.sleep(0.3)
        writer.close()


async def slow(port: int, address: str) -> None:
    """Open 200 connections, which send half a header after a valid request, or do not read a very large answer."""

    async def one(number: int) -> None:
        while True:
            reader, writer = await _connection(port, address)
            writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"}")
            writer.write(b"GET /v1/hea" if number % 2 else b"GET /v1/gpus HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
            reader._transport.pause_reading() if number % 2 == 0 else None  # type: ignore[attr-defined]
            while not writer.transport.is_closing():
                await asyncio.sleep(0.5)

    async def forever(number: int) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await one(number)

    await asyncio.gather(*map(forever, range(200)))


async def methods(port: int, address: str) -> None:
    """Send a new method with every request."""
    reader, writer = await _connection(port, address)
    for number in itertools.count():
        writer.write(f"M{number} /v1/predict HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        await asyncio.sleep(0.01)


ATTACKS: tuple[Callable[[int, str], Awaitable[None]], ...] = (memory, unknown, slow, methods)


async def attack(port: int) -> None:
    """Run two clients of each kind until they are cancelled. A client whose connection is closed connects again."""

    async def persistent(client: Callable[[int, str], Awaitable[None]], address: str) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await client(port, address)
            await asyncio.sleep(0.1)

    addresses = (f"127.0.1.{number}" for number in itertools.count(1))
    await asyncio.gather(*(persistent(client, next(addresses)) for client in ATTACKS for _ in range(2)))
