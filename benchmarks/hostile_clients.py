"""Clients that do harm to a service, from addresses of their own; benchmarks/service.py asks beside them.

    python benchmarks/hostile_clients.py 8000 memory,bombs      # until it is stopped; for a service on this machine

Each kind is one attack: memory (questions with megabytes of paths), unknown (models that must be traced, and leaving
before the answer), slow (heads that never end, answers that nobody reads), methods (any text as a method), bombs
(bodies of faults), work (the largest comparisons), trees (modules within hundreds of others), names (models that nobody
has), shares (being another client in every request), configurations (files that name code and other files), pipelines
(hundreds of requests behind each other on many connections), chunks (bodies in pieces of one byte).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator


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


LINEAR = [
    {"kind": "linear", "input_shapes": [[1 + n % 97, 1 + n]], "attributes": {"out_features": 1 + n % 89}}
    for n in range(5000)
]
TOKEN = "a-token-for-everybody"  # noqa: S105  # of services that these clients attack


def _bombs() -> Iterator[tuple[str, object]]:
    """Bodies of 4 MB, and of just under the size that is parsed in the event loop, in which everything is a fault."""
    for size in (3_900_000, 15_500, 63_000):
        yield "predict_many", {"networks": [0] * (size // 3), "gpu": "A30"}
        yield "predict_many", {"networks": [{"a": 0, "b": 0}] * (size // 20), "gpu": "A30"}
        yield "predict", {"operations": [0] * (size // 3), "gpu": "A30"}
        yield "predict", {"operations": [{"kind": 0}] * (size // 13), "gpu": "A30"}
        yield "predict", {**{f"f{number}": 0 for number in range(size // 12)}, "gpu": "A30"}
        yield "predict_operations", {"operations": [{"kind": "relu", "input_shapes": [[0] * 9] * 250}] * (size // 8000)}
        yield "predict", {"operations": [{**LINEAR[0], "module_paths": [0] * (size // 3)}], "gpu": "A30"}


def _repeated(port: int, address: str, questions: list[tuple[str, object]], connections: int) -> Awaitable[None]:
    """Send questions one after the other over several connections, each as soon as the one before was answered."""
    sent = [_post(path, question) for path, question in questions]

    async def one(first: int) -> None:
        for place in itertools.count(first):
            reader, writer = await _connection(port, address)
            writer.write(sent[place % len(sent)])
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

    async def forever(first: int) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await one(first)
            await asyncio.sleep(0.05)

    return _all(forever(number) for number in range(connections))


async def _all(coroutines: Iterable[Awaitable[None]]) -> None:
    await asyncio.gather(*coroutines)


async def bombs(port: int, address: str) -> None:
    """Send bodies in which everything is a fault."""
    await _repeated(port, address, list(_bombs()), 4)


async def work(port: int, address: str) -> None:
    """Ask for the largest comparisons: what limits allow, and what they do not."""
    clocks = [900 + 0.25 * n for n in range(1000)]
    job = {"operations": LINEAR, "gpus": ["A30"]}
    sweeps = [
        ("sweep", {**job, "clocks_mhz": clocks}),
        ("sweep", {**job, "clocks_mhz": clocks, "precision": ["fp32", "tf32", "bf16", "fp16"]}),
        ("best", {"model": "densenet121", "input_shape": [1, 3, 224, 224], "batch_sizes": list(range(1, 6))}),
        *(("predict", {**_NAMED, "input_shape": [n, 3, 224, 224]}) for n in range(1, 200)),
        ("predict_many", {"networks": [{"operations": LINEAR[n : n + 50]} for n in range(400)], "gpu": "A30"}),
    ]
    await _repeated(port, address, sweeps, 4)


_NAMED = {"model": "densenet121", "gpu": "A30"}


async def trees(port: int, address: str) -> None:
    """Ask for trees of modules within hundreds of others, of far too many modules, and of as many as are allowed."""
    deep = [{**LINEAR[0], "module_paths": [".".join(["a"] * 499) + f".{n}" for n in range(3600)], "count": 3600}]
    wide = [{**LINEAR[n], "module_paths": [f"{n}.{m}" for m in range(9000)], "count": 9000} for n in range(40)]
    most = [{**LINEAR[n], "module_paths": [f"{n}.{m}" for m in range(125)], "count": 125} for n in range(40)]
    asked = [{"operations": each, "gpu": "A30", "tree": True} for each in (deep, wide, most)]
    await _repeated(port, address, [("predict", each) for each in asked], 4)


async def names(port: int, address: str) -> None:
    """Name models that nobody has, and models that must be traced, each in other words, as quickly as is answered."""
    rng = random.Random(address)

    async def one() -> None:
        while True:
            reader, writer = await _connection(port, address)
            name = (
                f"no_such_model_{rng.random():.9f}"[:90].replace(".", "_") if rng.random() < 0.7 else "plain_bert_base"
            )
            shape = [rng.randint(1, 64), rng.randint(8, 500)]
            writer.write(_post("predict", {"model": name, "input_shape": shape, "gpu": "A30"}))
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

    await _all(one() for _ in range(16))


async def shares(port: int, address: str) -> None:
    """Be another client in every request: by the spelling of a token, and by addresses that a proxy would forward.

    They come from 127.0.0.1, as a proxy on the same machine would.
    """
    rng, address = random.Random(address), "127.0.0.1"

    async def one() -> None:
        while True:
            reader, writer = await _connection(port, address)
            spelled = "".join(rng.choice([letter.upper(), letter]) for letter in "bearer")
            shape = [rng.randint(1, 4000), 3, 224, 224]
            asked = _post("best", {"model": "resnet50", "input_shape": shape, "objective": "edp"})
            others = ".".join(str(rng.randint(1, 254)) for _ in range(4))
            lines = f"Authorization: {spelled}{' ' * rng.randint(1, 90)}{TOKEN}\r\nX-Forwarded-For: {others}\r\nHost: x"
            writer.write(asked.replace(b"Host: x", lines.encode(), 1))
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

    await _all(one() for _ in range(24))


async def configurations(port: int, address: str) -> None:
    """Send configurations that name code, files and large models."""
    sizes = {"hidden_size": 8192, "intermediate_size": 32768, "num_hidden_layers": 500, "num_attention_heads": 64}
    contents = [
        {
            "model_type": "timm_wrapper",
            "architecture": "local-dir:/etc",
            "model_args": {"checkpoint_path": "/etc/passwd"},
        },
        {"model_type": "llama", "attn_implementation": "kernels-community/flash-attn2"},
        {"model_type": "llama", **sizes},
    ]
    questions = [("extract/file?name=config.json&input_shape=1,8", each) for each in contents]
    await _repeated(port, address, questions, 4)


async def _poured(port: int, address: str, sent: bytes, connections: int) -> None:
    """Send the same bytes over several connections, and again as soon as everything was answered or refused."""

    async def forever() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await _connection(port, address)
                writer.write(sent)
                while await reader.read(1 << 16):
                    pass
                writer.close()
            await asyncio.sleep(0.05)

    await _all(forever() for _ in range(connections))


async def pipelines(port: int, address: str) -> None:
    """Send a thousand requests behind each other, over each of 50 connections."""
    end = b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    await _poured(port, address, b"GET /v1/execution HTTP/1.1\r\nHost: x\r\n\r\n" * 1000 + end, 50)


async def chunks(port: int, address: str) -> None:
    """Send bodies in chunks of one byte."""
    lines = (
        b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    await _poured(port, address, lines + b"1\r\n \r\n" * 500_000 + b"0\r\n\r\n", 8)


Attack = Callable[[int, str], Awaitable[None]]
KINDS: tuple[Attack, ...] = (
    *(memory, unknown, slow, methods, bombs, work, trees, names, shares, configurations, pipelines, chunks),
)
ATTACKS: dict[str, Attack] = {each.__name__: each for each in KINDS}


async def attack(port: int, attacks: Iterable[Attack]) -> None:
    """Run two clients of each kind until they are cancelled. A client whose connection is closed connects again."""

    async def persistent(client: Attack, address: str) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await client(port, address)
            await asyncio.sleep(0.1)

    addresses = (f"127.0.1.{number}" for number in itertools.count(1))
    await asyncio.gather(*(persistent(client, next(addresses)) for client in attacks for _ in range(2)))


if __name__ == "__main__":
    asyncio.run(attack(int(sys.argv[1]), [ATTACKS[name] for name in sys.argv[2].split(",")]))
