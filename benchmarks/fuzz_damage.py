"""Ways to damage a file: random changes of its bytes, or changes of its values that keep the format valid."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import os
import random
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -1e308, 0.5, float("nan"), float("inf")),
    *("", "x" * 5000, "../../x", "/etc/passwd", "\0", "nan", [], {}, [[]], [0] * 500, {"a": {"b": {}}}, [None]),
)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A copy of some bytes in which random parts are flipped, removed, repeated or inserted."""
    for _ in range(rng.choice([1, 1, 2, 6])):
        place = rng.randrange(len(data) + 1)
        length = min(rng.choice([1, 1, 4, 40]), len(data) - place)
        match rng.randrange(5):
            case 0 | 1:
                flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in data[place : place + 1])
                data = data[:place] + flipped + data[place + 1 :]
            case 2:
                data = data[:place] + data[place + length :]
            case 3:
                data = data[:place] + data[place : place + length] * 2 + data[place + length :]
            case 4:
                data = data[:place] + rng.choice([b"\0", b"\xff" * 9, b"[" * 3000, b"9" * 5000]) + data[place:]
    return data


def edited(value: Any, rng: random.Random, odd: Sequence[Any] = ODD) -> Any:
    """A copy of a JSON value in which one inner value is removed, changed, repeated, or replaced by an odd one."""
    value = copy.deepcopy(value)
    node = value
    while True:
        keys: Any = list(node) if isinstance(node, dict) else range(len(node))
        if not keys:
            return value
        key = rng.choice(keys)
        inner = node[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.85:
            node = inner
            continue
        change = rng.random()
        if change < 0.15:
            del node[key]
        elif change < 0.28 and isinstance(inner, int | float) and not isinstance(inner, bool):
            node[key] = inner * rng.choice([-1, 0, 1e-6, 1000, 10**9, 1e300])
        elif change < 0.3:
            node[key] = [inner] * 1000
        else:
            node[key] = rng.choice(odd)
        return value


def toml_text(value: Any, name: str = "") -> str:
    """Tables as TOML text. Values are written as in JSON, which is valid TOML for all values but null."""
    plain = {key: item for key, item in value.items() if not isinstance(item, dict)}
    lines = [f"[{name}]"] if name else []
    lines += [f"{json.dumps(key)} = {json.dumps(item)}" for key, item in plain.items()]
    for key, item in value.items():
        if isinstance(item, dict):
            lines.append(toml_text(item, f"{name}.{json.dumps(key)}" if name else json.dumps(key)))
    return "\n".join(lines) + "\n"


def damage(path: Path, rng: random.Random) -> None:
    """Damage a file in its bytes or in its values, or something in a folder."""
    if path.is_dir():
        _folder(path, rng)
    elif (knows := _KNOWN.get(path.suffix)) is not None and rng.random() < 0.6:
        knows(path, rng)
    else:
        path.write_bytes(damaged(path.read_bytes(), rng))


INDEXES = ("manifest.json", "card.json")
"""The first of these that a folder has holds the digests of all its files."""


def _folder(folder: Path, rng: random.Random) -> None:
    """Damage a file, or put something else in its place; mostly as somebody would who knows the digests of an index."""
    files = sorted(folder.iterdir())
    chosen = rng.choice(files)
    match rng.randrange(12):
        case 0:
            chosen.unlink()
            return
        case 1:
            aside = chosen.rename(folder / "aside")
            rng.choice([lambda: chosen.symlink_to(aside), lambda: os.mkfifo(chosen), chosen.mkdir])()
            return
        case 2:
            chosen.write_bytes(rng.choice(files).read_bytes())
        case 3:
            chosen.write_bytes(rng.choice(BOMBS)())
        case _:
            damage(chosen, rng)
    index = next((folder / name for name in INDEXES if (folder / name).exists()), chosen)
    if chosen != index and rng.random() < 0.7:
        content = json.loads(index.read_bytes())
        data = chosen.read_bytes()
        if fact := content["files"].get(chosen.name):
            fact |= {"sha256": hashlib.sha256(data).hexdigest()}
            fact |= {"size_bytes": len(data)} if "size_bytes" in fact else {}
            index.write_text(json.dumps(content))


BOMBS: tuple[Callable[[], bytes], ...] = (
    lambda: zlib.compress(bytes(200 << 20), 1),
    lambda: zlib.compress(b"[" * (4 << 20), 1),
    lambda: b"[" * 2_000_000,
    lambda: b'{"a":' * 500_000,
    lambda: b"[" + b"{}," * 2_000_000 + b"0]",
    lambda: b"9" * 3_000_000,
    lambda: (2**63).to_bytes(8, "little") + b"{}",
    lambda: b"",
)
"""Contents that take much memory or time if they are read carelessly."""


def _packed(path: Path, rng: random.Random) -> None:
    """Deflated data, of which the beginning has names and shapes; of arrays, a header in JSON."""
    data = zlib.decompress(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    if ".safetensors" in path.suffixes and rng.random() < 0.5:
        header = json.dumps(edited(json.loads(data[8 : 8 + length]), rng)).encode()
        data = len(header).to_bytes(8, "little") + header + data[8 + length :]
    else:
        head = rng.choice([16, 200, 1000, len(data)])
        data = damaged(data[:head], rng) + data[head:]
    path.write_bytes(zlib.compress(data, 1))


def _json(path: Path, rng: random.Random) -> None:
    path.write_text(json.dumps(edited(json.loads(path.read_bytes()), rng)))


def _toml(path: Path, rng: random.Random) -> None:
    path.write_text(toml_text(edited(tomllib.loads(path.read_text()), rng)))


def _jsonl(path: Path, rng: random.Random) -> None:
    """Damaged lines of a journal or a recording, with checksums that match again."""
    lines = path.read_bytes().splitlines()
    place = rng.randrange(len(lines))
    record = edited(json.loads(lines[place]), rng)
    if "journal_version" in json.loads(lines[0]):
        text = json.dumps({k: v for k, v in record.items() if k != "crc32"}).encode().removesuffix(b"}")
        lines[place] = b'%b, "crc32": "%08x"}' % (text, zlib.crc32(text, place + 1))
    else:
        text = json.dumps({k: v for k, v in record.items() if k != "crc32"}, separators=(",", ":")).encode()[:-1]
        lines[place] = b'%b,"crc32":"%08x"}' % (text, zlib.crc32(text))
    path.write_bytes(b"\n".join(lines) + b"\n")


def _pt2(path: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    graph = next(name for name in members if "/models/" in name and name.endswith(".json"))
    program = json.loads(members[graph])
    for _ in range(rng.choice([1, 1, 3])):
        program = {**program, "graph_module": edited(program["graph_module"], rng)}
    members[graph] = json.dumps(program).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _csv(path: Path, rng: random.Random) -> None:
    rows = list(csv.reader(io.StringIO(path.read_text())))
    row = rng.choice(rows)
    cell = rng.randrange(len(row))
    match rng.randrange(8):
        case 0:
            del row[cell]
        case 1:
            row.append(str(rng.choice(ODD)))
        case _:
            row[cell] = str(rng.choice(ODD)).replace("\0", "")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def _parquet(path: Path, rng: random.Random) -> None:
    """A table with a wrong value, type or column."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    place = rng.randrange(table.num_columns)
    name, rows = table.schema.names[place], table.num_rows
    values = table.column(place).to_pylist()
    match rng.randrange(4 if rows else 3):
        case 0:
            table = table.remove_column(place)
        case 1:
            other = rng.choice(
                [pa.nulls(rows), pa.array([[1]] * rows), pa.array(["7"] * rows), pa.array([b"\xff"] * rows)]
            )
            table = table.set_column(place, name, other)
        case 2:
            numbers = pa.array([rng.choice([1, -1, 10**18, 0]) for _ in range(rows)])
            table = table.set_column(place, name, numbers)
        case _:
            values[rng.randrange(rows)] = rng.choice([value for value in ODD if not isinstance(value, list | dict)])
            try:
                column = pa.array(values, type=table.schema.field(place).type)
            except (pa.ArrowException, TypeError, OverflowError, ValueError):
                column = pa.array([None if value is None else str(value).replace("\0", "") for value in values])
            table = table.set_column(place, name, column)
    parquet.write_table(table, path)


_KNOWN = {
    ".json": _json,
    ".toml": _toml,
    ".jsonl": _jsonl,
    ".pt2": _pt2,
    ".csv": _csv,
    ".parquet": _parquet,
    ".z": _packed,
}
