"""Fuzzes zoo entries: damages them in thousands of ways, and checks that none does harm.

    python benchmarks/fuzz_zoo.py                                      # 2,000 mutations of what is in zoo/
    python benchmarks/fuzz_zoo.py zoo/any-gpu/transformer --count 500 --seed 1

A mutation flips bytes, cuts off, swaps files, or is made by somebody who knows the format: digests and sizes in the
manifest fit again, and values, shapes and sizes are hostile. Each is loaded, and if that works asked for predictions,
in a process whose memory and time are limited. What may come out:

refused         one ZooError
harmless, same  it loads, and predicts what it predicted before, to the last bit
harmless, else  it loads and predicts something else. Only for consistent mutations: whoever may write a manifest may
                write any predictor; its manifest's sha256 is another, so an index, the cache and the registry refuse it
unnoticed       a fault: it loads and predicts something else, though its manifest is that of what it was
all others      faults: another exception, a crash, a hang, more than 1 GB
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_damage import edited
from fuzz_judge import FAULTS, Judge, Limits, Tally, Verdict, fuzz, main

from joulecast.errors import JoulecastError, ZooError

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Limits(address_bytes=4 << 30)
ZOO_FAULTS = (*FAULTS, "unnoticed")
ZOO_OUTCOMES = ("refused", "harmless, same", "harmless, else", *ZOO_FAULTS)
MANIFEST = "manifest.json"

Files = dict[str, bytes]

# Hostile values.
NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, -(10**18), 1e308, -1e308, 1e-320, 0.5),
    *("", "x" * 10_000, "../../x", "/etc/passwd", "nan", "0" * 64, "a30/forest-inference"),
    *([], {}, [[]], [0] * 10_000, {"a": {"b": {}}}, [None], ["relu"]),
)


@dataclass(frozen=True)
class Mutation:
    """The damaged files; `consistent` if the manifest matches them."""

    files: Files
    consistent: bool
    odd: str = ""  # a file that becomes a link, a pipe or a folder


def fixed_up(files: Files) -> Files:
    """Correct the manifest, so that it matches the files."""
    try:
        manifest = json.loads(files[MANIFEST])
        for name, data in files.items():
            if name != MANIFEST and name in manifest["files"]:
                manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    except (ValueError, KeyError, TypeError):
        return files
    return {**files, MANIFEST: json.dumps(manifest).encode()}


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def some_file(files: Files, rng: random.Random, suffix: str = "") -> str:
    names = sorted(name for name in files if name != MANIFEST and name.endswith(suffix))
    return rng.choice(names or [MANIFEST])


# One function per kind of mutation. Its arguments are the files, those of another entry, and a random number generator.


def flip(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    return Mutation({**files, name: flipped(files[name], rng)}, False)


def cut(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    data = files[name]
    new = data[: rng.randrange(len(data))] if rng.random() < 0.8 else data + rng.randbytes(rng.randrange(1, 100))
    return Mutation({**files, name: new}, False)


def swap(files: Files, other: Files, rng: random.Random) -> Mutation:
    consistent = rng.random() < 0.5
    name = some_file(files, rng)
    source = other if rng.random() < 0.5 else files
    changed = {**files, name: source[rng.choice(sorted(source))]}
    return Mutation(fixed_up(changed) if consistent else changed, consistent)


def lost(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    return Mutation({key: data for key, data in files.items() if key != name}, False)


def flip_consistently(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng)
    return Mutation(fixed_up({**files, name: flipped(files[name], rng)}), True)


def flip_unpacked(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng, ".z")
    if name == MANIFEST:
        return flip_consistently(files, other, rng)
    data = zlib.compress(flipped(zlib.decompress(files[name]), rng), 1)
    return Mutation(fixed_up({**files, name: data}), True)


def flip_head(files: Files, other: Files, rng: random.Random) -> Mutation:
    """The part of a file that contains headers, names and shapes."""
    name = some_file(files, rng, ".z")
    if name == MANIFEST:
        return flip_consistently(files, other, rng)
    data = zlib.decompress(files[name])
    head = rng.choice([16, 200, 1000])
    new = zlib.compress(flipped(data[:head], rng) + data[head:], 1)
    return Mutation(fixed_up({**files, name: new}), True)


def hostile_manifest(files: Files, other: Files, rng: random.Random) -> Mutation:
    manifest = edited(json.loads(files[MANIFEST]), rng, NASTY)
    return Mutation({**files, MANIFEST: json.dumps(manifest).encode()}, True)


def hostile_json(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(["card.json", "predictor.json"])
    value = json.loads(files[name])
    for _ in range(rng.choice([1, 1, 3])):
        value = edited(value, rng, NASTY)
    return Mutation(fixed_up({**files, name: json.dumps(value).encode()}), True)


def hostile_arrays(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng, ".safetensors.z")
    if name == MANIFEST:
        return hostile_json(files, other, rng)
    data = zlib.decompress(files[name])
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(edited(json.loads(data[8 : 8 + size]), rng, NASTY)).encode()
    new = len(header).to_bytes(8, "little") + header + data[8 + size :]
    return Mutation(fixed_up({**files, name: zlib.compress(new, 1)}), True)


def bomb(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng)
    data = rng.choice(
        [
            zlib.compress(bytes(200 << 20), 1),
            zlib.compress(b"[" * (4 << 20), 1),
            b"[" * 2_000_000,
            b'{"a":' * 500_000,
            b"[" + b"{}," * 2_000_000 + b"0]",
            b"9" * 3_000_000,
            (2**63).to_bytes(8, "little") + b"{}",
            b"",
        ]
    )
    return Mutation(fixed_up({**files, name: data}), True)


def odd(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    return Mutation(dict(files), False, f"{rng.choice(['link', 'pipe', 'folder'])} {name}")


KINDS: dict[str, Callable[[Files, Files, random.Random], Mutation]] = {
    "flipped bytes": flip,
    "cut off or longer": cut,
    "swapped files": swap,
    "missing file": lost,
    "flipped bytes, consistent": flip_consistently,
    "flipped bytes in what is packed, consistent": flip_unpacked,
    "flipped bytes in a header, consistent": flip_head,
    "bombs, consistent": bomb,
    "link, pipe or folder": odd,
    "hostile manifest": hostile_manifest,
    "hostile values, consistent": hostile_json,
    "hostile shapes, consistent": hostile_arrays,
}


def written(mutation: Mutation, folder: Path) -> None:
    folder.mkdir()
    for name, data in mutation.files.items():
        (folder / name).write_bytes(data)
    if mutation.odd:
        kind, name = mutation.odd.split(" ")
        path = folder / name
        path.rename(folder / "aside") if path.exists() else None
        if kind == "link":
            path.symlink_to(folder / "aside")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()


def probed(folder: Path) -> str:
    """The predictions of an entry, as one digest."""
    from joulecast import Network, Operation
    from joulecast.hardware import find_gpu
    from joulecast.operations.operation_list import OperationList
    from joulecast.zoo.entries.any_gpu_entry import AnyGpuEntry
    from joulecast.zoo.entries.entry import load_any
    from joulecast.zoo.entries.kernels_entry import KernelsEntry

    found = load_any(folder)
    numbers: list[float] = []
    if isinstance(found, KernelsEntry):
        products = [Operation("linear", [(m, 4096)], {"out_features": 4096}, precision="bf16") for m in (1, 64, 4096)]
        listed = OperationList.of(products)
        numbers += found.kernels.device_s(listed, find_gpu("H100 SXM")).tolist()
        return hashlib.sha256(np.array(numbers).tobytes()).hexdigest()
    if isinstance(found, AnyGpuEntry):
        predictors = [
            found.on(find_gpu(gpu), mode) for gpu in ("A30", "H100 SXM") for mode in ("inference", "training")
        ]
    else:
        predictors = [found]
    for predictor in predictors:
        mode = predictor.operations.mode
        operations = [
            Operation(kind, [(n, channels, 28, 28)], attributes, mode=mode)
            for n in (1, 32)
            for channels in (16, 512)
            for kind, attributes in (
                ("relu", {}),
                ("batch_norm", {}),
                ("conv2d", {"out_channels": 64, "kernel_size": 3}),
            )
        ]
        operations += [Operation("linear", [(n, 1024)], {"out_features": 1024}, mode=mode) for n in (1, 64, 4096)]
        predictions = predictor.operations.predict(operations)
        network = predictor.predict(Network.of([(operation, 3) for operation in operations]))
        interval = network.interval(0.5)
        numbers += [*predictions.energy_j.tolist(), *predictions.device_time_s.tolist()]
        numbers += [network.time_s, np.nan if network.energy_j is None else network.energy_j]
        numbers += [*interval.time_s, *(interval.energy_j or ())] if interval else []
    return hashlib.sha256(np.array(numbers).tobytes()).hexdigest()


def read(folder: Path) -> str:
    """The predictions of an entry. A refused request, which any predictor may refuse, counts as an answer."""
    try:
        return probed(folder)
    except ZooError:
        raise
    except JoulecastError as error:
        return f"{type(error).__name__}: {error.what}"


Judged = Callable[[Path], Verdict]


def fuzz_entries(entries: Sequence[Path], shares: Mapping[str, int], seed: int, judge: Judged) -> Tally:
    """Judge as many mutations of each kind as its share says, of one of the entries each.

    Args:
        entries: Folders of whole entries.
        shares: Kind of mutation -> how many.
        judge: Loads a folder.
    """
    contents = [{path.name: path.read_bytes() for path in entry.iterdir()} for entry in entries]
    expected = []
    for entry in entries:
        verdict = judge(entry)
        if verdict.outcome != "read":
            raise SystemExit(f"{entry} does not load as it is: {verdict.said}")
        expected.append(verdict.said)
    with tempfile.TemporaryDirectory() as scratch:

        def judged(kind: str, rng: random.Random) -> Verdict:
            mine = rng.randrange(len(entries))
            mutation = KINDS[kind](contents[mine], rng.choice(contents), rng)
            folder = Path(scratch) / "entry"
            written(mutation, folder)
            verdict = judge(folder)
            shutil.rmtree(folder)
            if verdict.outcome != "read":
                return verdict
            if verdict.said == expected[mine]:
                return Verdict("harmless, same", "")
            if mutation.consistent:
                return Verdict("harmless, else", "")
            return Verdict("unnoticed", f"of {entries[mine].name}: damage that went unnoticed")

        return fuzz(shares, seed, judged, faults=ZOO_FAULTS)


def run(names: Sequence[str], count: int, seed: int) -> Tally:
    """Fuzz the entries in these folders, or all of zoo/."""
    entries = [*map(Path, names)] or sorted(path.parent for path in (ROOT / "zoo").glob(f"*/*/{MANIFEST}"))
    judge = Judge(read, LIMITS)
    try:
        return fuzz_entries(entries, dict.fromkeys(KINDS, -(-count // len(KINDS))), seed, judge)
    finally:
        judge.stop()


if __name__ == "__main__":
    main(__doc__ or "", run, what="folders of entries; all of zoo/ if left out", count=2000, outcomes=ZOO_OUTCOMES)
