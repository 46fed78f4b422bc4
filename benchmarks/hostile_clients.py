"""Clients that do harm to a service, from addresses of their own; benchmarks/service.py asks beside them.

    python benchmarks/hostile_clients.py 8000 memory,bombs      # until it is stopped; for a service on this machine

ATTACKS says what each kind does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

Questions = Callable[[], Iterable[tuple[str, object]]]

LINEAR = [
    {"kind": "linear", "input_shapes": [[1 + n % 97, 1 + n]], "attributes": {"out_features": 1 + n % 89}}
    for n in range(5000)
]
TOKEN = "a-token-for-everybody"  # noqa: S105  # of services that these clients attack
_NAMED = {"model": "densenet121", "gpu": "A30"}


class Attack(NamedTuple):
    """What a hostile client sends.

    Args:
        does: In words.
        sent: The requests of a connection, one after the other, from a source of chance.
        connections: How many are open at a time.
        leaves_s: Seconds after which it closes the connection without having read anything; None for reading the head
            of the answer before.
        address: That it comes from; None for one of its own.
    """

    does: str
    sent: Callable[[random.Random], Iterable[bytes]]
    connections: int = 1
    leaves_s: float | None = None
    address: str | None = None


def _post(path: str, question: object) -> bytes:
    body = json.dumps(question).encode()
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def _memory(rng: random.Random) -> Iterator[bytes]:
    for number in itertools.count():
        paths = [f"{number}.{i}.{'p' * 900}" for i in range(300)]
        dropped = [{"name": f"d{j}", "count": 1, "module_paths": paths, "reason": "r"} for j in range(10)]
        relu = {"kind": "relu", "input_shapes": [[32, 64]]}
        yield _post("predict", {"operations": [relu], "dropped": dropped, "gpu": "A30"})


def _unknown(rng: random.Random) -> Iterator[bytes]:
    while True:
        shape = [rng.randint(1, 64), rng.randint(8, 500)]
        yield _post("predict", {"model": "plain_bert_base", "input_shape": shape, "gpu": "A30"})


def _names(rng: random.Random) -> Iterator[bytes]:
    for traced in _unknown(rng):
        name = f"no_such_model_{rng.random():.9f}".replace(".", "_")
        nobody_has = _post("predict", {"model": name, "input_shape": [1, 8], "gpu": "A30"})
        yield nobody_has if rng.random() < 0.7 else traced


def _methods(rng: random.Random) -> Iterator[bytes]:
    for number in itertools.count(rng.getrandbits(32)):
        yield f"M{number} /v1/predict HTTP/1.1\r\nHost: x\r\n\r\n".encode()


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


@cache
def _posted(questions: Questions) -> list[bytes]:
    return [_post(path, question) for path, question in questions()]


def _repeated(questions: Questions) -> Callable[[random.Random], Iterator[bytes]]:
    """Send the same questions over and over, each connection from another one on."""

    def sent(rng: random.Random) -> Iterator[bytes]:
        requests = _posted(questions)
        return itertools.islice(itertools.cycle(requests), rng.randrange(len(requests)), None)

    return sent


def _work() -> Iterator[tuple[str, object]]:
    clocks = [900 + 0.25 * n for n in range(1000)]
    job = {"operations": LINEAR, "gpus": ["A30"]}
    yield "sweep", {**job, "clocks_mhz": clocks}
    yield "sweep", {**job, "clocks_mhz": clocks, "precision": ["fp32", "tf32", "bf16", "fp16"]}
    yield "best", {"model": "densenet121", "input_shape": [1, 3, 224, 224], "batch_sizes": list(range(1, 6))}
    yield from (("predict", {**_NAMED, "input_shape": [n, 3, 224, 224]}) for n in range(1, 200))
    yield "predict_many", {"networks": [{"operations": LINEAR[n : n + 50]} for n in range(400)], "gpu": "A30"}


def _trees() -> Iterator[tuple[str, object]]:
    deep = [{**LINEAR[0], "module_paths": [".".join(["a"] * 499) + f".{n}" for n in range(3600)], "count": 3600}]
    wide = [{**LINEAR[n], "module_paths": [f"{n}.{m}" for m in range(9000)], "count": 9000} for n in range(40)]
    most = [{**LINEAR[n], "module_paths": [f"{n}.{m}" for m in range(125)], "count": 125} for n in range(40)]
    for operations in (deep, wide, most):
        yield "predict", {"operations": operations, "gpu": "A30", "tree": True}


def _shares(rng: random.Random) -> Iterator[bytes]:
    while True:
        spelled = "".join(rng.choice([letter.upper(), letter]) for letter in "bearer")
        shape = [rng.randint(1, 4000), 3, 224, 224]
        asked = _post("best", {"model": "resnet50", "input_shape": shape, "objective": "edp"})
        others = ".".join(str(rng.randint(1, 254)) for _ in range(4))
        lines = f"Authorization: {spelled}{' ' * rng.randint(1, 90)}{TOKEN}\r\nX-Forwarded-For: {others}\r\nHost: x"
        yield asked.replace(b"Host: x", lines.encode(), 1)


def _configurations() -> Iterator[tuple[str, object]]:
    timm = {"model_type": "timm_wrapper", "architecture": "local-dir:/etc"}
    sizes = {"hidden_size": 8192, "intermediate_size": 32768, "num_hidden_layers": 500, "num_attention_heads": 64}
    for content in (
        {**timm, "model_args": {"checkpoint_path": "/etc/passwd"}},
        {"model_type": "llama", "attn_implementation": "kernels-community/flash-attn2"},
        {"model_type": "llama", **sizes},
    ):
        yield "extract/file?name=config.json&input_shape=1,8", content


ATTACKS: dict[str, Attack] = {
    "memory": Attack("requests of 3 MB, each with other module paths in its dropped work", _memory),
    "unknown": Attack("models that must be traced, three a second, without waiting", _unknown, leaves_s=0.3),
    "methods": Attack("a new method with every request", _methods),
    "bombs": Attack("bodies in which everything is a fault", _repeated(_bombs), 4),
    "work": Attack("the largest comparisons: what limits allow, and what they do not", _repeated(_work), 4),
    "trees": Attack(
        "modules within hundreds of others, far too many, and as many as are allowed", _repeated(_trees), 4
    ),
    "names": Attack("models that nobody has, and models that must be traced, as quickly as is answered", _names, 16),
    # They come from where a proxy on the same machine would.
    "shares": Attack(
        "being another client in every request, by the spelling of a token and by forwarded addresses",
        _shares,
        24,
        address="127.0.0.1",
    ),
    "configurations": Attack("configurations that name code, files and large models", _repeated(_configurations), 4),
}


async def _connection(port: int, address: str, attack: Attack, rng: random.Random) -> None:
    """Send the requests of one connection after the other until it is cancelled, and connect again if it is closed."""
    while True:
        for sent in attack.sent(rng):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                writer.write(sent)
                if attack.leaves_s is not None:
                    await asyncio.sleep(attack.leaves_s)
                else:
                    await reader.readuntil(b"\r\n\r\n")
                writer.close()
                continue
            await asyncio.sleep(0.05)


async def run(port: int, attacks: Iterable[Attack]) -> None:
    """Run two clients of each kind until they are cancelled."""
    addresses = (f"127.0.1.{number}" for number in itertools.count(1))
    clients = [(attack, attack.address or next(addresses)) for attack in attacks for _ in range(2)]
    connections = [client for client in clients for _ in range(client[0].connections)]
    await asyncio.gather(
        *(
            _connection(port, address, attack, random.Random(number))
            for number, (attack, address) in enumerate(connections)
        )
    )


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), [ATTACKS[name] for name in sys.argv[2].split(",")]))
