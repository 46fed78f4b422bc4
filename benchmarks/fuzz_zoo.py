"""Damage zoo entries in thousands of ways and see that none does harm.

    python benchmarks/fuzz_zoo.py                                      # 2,000 mutations of what is in zoo/
    python benchmarks/fuzz_zoo.py zoo/any-gpu/transformer --count 500 --seed 1

A mutation flips bytes, cuts off, swaps files, or is made by somebody who knows the format: digests and sizes in the
manifest fit again, and values, shapes and sizes are hostile. Each is loaded, and if that works asked for predictions,
in a process whose memory and time are limited. What may come out:

refused         one ZooError
harmless, same  it loads, and predicts what it predicted before, to the last bit
harmless, else  it loads and predicts something else. Only for consistent mutations: whoever may write a manifest may
                write any predictor; its manifest's sha256 is another, so an index, the cache and the registry refuse it
harmful         anything else: another exception, a crash, a hang, too much memory, or damage that went unnoticed
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 60.0
MOST_MEMORY_BYTES = 4 << 30
MOST_GROWTH_BYTES = 2 << 30
MANIFEST = "manifest.json"

Files = dict[str, bytes]

# Values that somebody would try.
NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, -(10**18), 1e308, -1e308, 1e-320, 0.5),
    *("", "x" * 10_000, "../../x", "/etc/passwd", "nan", "0" * 64, "a30/forest-inference"),
    *([], {}, [[]], [0] * 10_000, {"a": {"b": {}}}, [None], ["relu"]),
)


@dataclass(frozen=True)
class Mutation:
    """What was done, and the files that came out; `consistent` where the manifest fits them."""

    kind: str
    files: Files
    consistent: bool
    odd: str = ""  # a file that becomes a link, a pipe or a folder


def fixed_up(files: Files) -> Files:
    """The manifest made to fit the files."""
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


def edited(value: Any, rng: random.Random) -> Any:
    """A JSON value with one hostile change somewhere in it."""
    value = copy.deepcopy(value)
    node = value
    while True:
        keys: Sequence[Any] = list(node) if isinstance(node, dict) else range(len(node))
        if not keys:
            return value
        key = rng.choice(keys)
        inner = node[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.75:
            node = inner
            continue
        change = rng.random()
        if change < 0.15:
            del node[key]
        elif change < 0.25 and isinstance(inner, int | float) and not isinstance(inner, bool):
            node[key] = inner * rng.choice([-1, 0, 1e6, 1e-6, 1e300])
        elif change < 0.3:
            node[key] = [inner] * 1000
        else:
            node[key] = rng.choice(NASTY)
        return value


def some_file(files: Files, rng: random.Random, suffix: str = "") -> str:
    names = sorted(name for name in files if name != MANIFEST and name.endswith(suffix))
    return rng.choice(names or [MANIFEST])


# One function per kind of mutation: the files, those of another entry, and a source of chance.


def flip(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    return Mutation("flipped bytes", {**files, name: flipped(files[name], rng)}, False)


def cut(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    data = files[name]
    new = data[: rng.randrange(len(data))] if rng.random() < 0.8 else data + rng.randbytes(rng.randrange(1, 100))
    return Mutation("cut off or longer", {**files, name: new}, False)


def swap(files: Files, other: Files, rng: random.Random) -> Mutation:
    consistent = rng.random() < 0.5
    name = some_file(files, rng)
    source = other if rng.random() < 0.5 else files
    changed = {**files, name: source[rng.choice(sorted(source))]}
    return Mutation("swapped files", fixed_up(changed) if consistent else changed, consistent)


def lost(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    return Mutation("missing file", {key: data for key, data in files.items() if key != name}, False)


def flip_consistently(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng)
    return Mutation("flipped bytes, consistent", fixed_up({**files, name: flipped(files[name], rng)}), True)


def flip_unpacked(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng, ".z")
    if name == MANIFEST:
        return flip_consistently(files, other, rng)
    data = zlib.compress(flipped(zlib.decompress(files[name]), rng), 1)
    return Mutation("flipped bytes in what is packed, consistent", fixed_up({**files, name: data}), True)


def flip_head(files: Files, other: Files, rng: random.Random) -> Mutation:
    """Where headers, names and shapes are."""
    name = some_file(files, rng, ".z")
    if name == MANIFEST:
        return flip_consistently(files, other, rng)
    data = zlib.decompress(files[name])
    head = rng.choice([16, 200, 1000])
    new = zlib.compress(flipped(data[:head], rng) + data[head:], 1)
    return Mutation("flipped bytes in a header, consistent", fixed_up({**files, name: new}), True)


def hostile_manifest(files: Files, other: Files, rng: random.Random) -> Mutation:
    manifest = edited(json.loads(files[MANIFEST]), rng)
    return Mutation("hostile manifest", {**files, MANIFEST: json.dumps(manifest).encode()}, True)


def hostile_json(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(["card.json", "predictor.json"])
    value = json.loads(files[name])
    for _ in range(rng.choice([1, 1, 3])):
        value = edited(value, rng)
    return Mutation(f"hostile {name}, consistent", fixed_up({**files, name: json.dumps(value).encode()}), True)


def hostile_arrays(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = some_file(files, rng, ".safetensors.z")
    if name == MANIFEST:
        return hostile_json(files, other, rng)
    data = zlib.decompress(files[name])
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(edited(json.loads(data[8 : 8 + size]), rng)).encode()
    new = len(header).to_bytes(8, "little") + header + data[8 + size :]
    return Mutation("hostile shapes, consistent", fixed_up({**files, name: zlib.compress(new, 1)}), True)


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
    return Mutation("bombs, consistent", fixed_up({**files, name: data}), True)


def odd(files: Files, other: Files, rng: random.Random) -> Mutation:
    name = rng.choice(sorted(files))
    return Mutation("link, pipe or folder", dict(files), False, f"{rng.choice(['link', 'pipe', 'folder'])} {name}")


KINDS: tuple[Callable[[Files, Files, random.Random], Mutation], ...] = (
    *(flip, cut, swap, lost, flip_consistently, flip_unpacked, flip_head, bomb, odd),
    *(hostile_manifest, hostile_json, hostile_arrays) * 2,
)


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
    """What an entry predicts, as one digest."""
    from joulecast import Network, Operation
    from joulecast.hardware import find_gpu
    from joulecast.zoo.catalogue import load_any
    from joulecast.zoo.entries.any_gpu_entry import AnyGpuEntry

    found = load_any(folder)
    numbers = []
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
        numbers += [network.time_s, network.energy_j, *(interval.time_s + interval.energy_j if interval else ())]
    return hashlib.sha256(np.array(numbers).tobytes()).hexdigest()


def worker(pipe: Connection) -> None:
    """Judge folders, one after the other: (verdict, what it said, most memory so far)."""
    import warnings

    from joulecast.errors import JoulecastError, ZooError

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    warnings.simplefilter("ignore")
    while True:
        folder = pipe.recv()
        try:
            verdict, said = "loaded", probed(folder)
        except ZooError as error:
            verdict, said = "refused", error.what
        except JoulecastError as error:
            # Loaded, and refuses what it is asked: as any predictor may.
            verdict, said = "loaded", f"{type(error).__name__}: {error.what}"
        except BaseException as error:  # noqa: BLE001  # that is what is looked for
            verdict, said = "harmful", f"{type(error).__name__}: {error}"[:300]
        pipe.send((verdict, said, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


class Judge:
    """A worker process, and another one where it died or hung."""

    def __init__(self) -> None:
        self.process: Any = None
        self.base_bytes = self.most_bytes = 0

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, folder: Path) -> tuple[str, str]:
        fresh = self.process is None
        if fresh:
            self._start()
        self.pipe.send(folder)
        try:
            if not self.pipe.poll(MOST_SECONDS):
                self.stop()
                return "harmful", f"hung for {MOST_SECONDS:.0f} s"
            verdict, said, memory = self.pipe.recv()
        except EOFError:
            self.process.join()
            code, self.process = self.process.exitcode, None
            return "harmful", f"crashed with {code}"
        self.base_bytes = self.base_bytes or memory
        self.most_bytes = max(self.most_bytes, memory)
        if memory - self.base_bytes > MOST_GROWTH_BYTES:
            self.stop()
            return "harmful", f"took {memory / 1e9:.1f} GB"
        return verdict, said

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


@dataclass
class Report:
    """Counts by kind of mutation and outcome, and every harmful one."""

    counts: Counter[tuple[str, str]]
    harmful: list[str]
    seconds: float
    most_bytes: int

    def text(self) -> str:
        outcomes = ("refused", "harmless, same", "harmless, else", "harmful")
        kinds = sorted({kind for kind, _ in self.counts})
        lines = [f"{'mutation':46}" + "".join(f"{outcome:>16}" for outcome in outcomes)]
        for kind in kinds:
            lines.append(f"{kind:46}" + "".join(f"{self.counts[kind, outcome]:>16}" for outcome in outcomes))
        sums = (sum(count for (_, each), count in self.counts.items() if each == outcome) for outcome in outcomes)
        lines += [f"{'all':46}" + "".join(f"{count:>16}" for count in sums), "", *self.harmful[:50]]
        return "\n".join([*lines, f"{self.seconds:.0f} s; most memory {self.most_bytes / 1e9:.2f} GB"])


def fuzz(entries: Sequence[Path], count: int, seed: int, judge: Callable[[Path], tuple[str, str]]) -> Report:
    """Judge `count` mutations of some entries, in turn."""
    contents = [{path.name: path.read_bytes() for path in entry.iterdir()} for entry in entries]
    expected = []
    for entry in entries:
        verdict, said = judge(entry)
        if verdict != "loaded":
            raise SystemExit(f"{entry} does not load as it is: {said}")
        expected.append(said)
    report = Report(Counter(), [], 0.0, 0)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            rng = random.Random(f"{seed}-{number}")
            mine = number % len(entries)
            kind = KINDS[number // len(entries) % len(KINDS)]
            mutation = kind(contents[mine], rng.choice(contents), rng)
            folder = Path(scratch) / "entry"
            written(mutation, folder)
            verdict, said = judge(folder)
            unchanged = mutation.files == contents[mine] and not mutation.odd
            if verdict == "loaded":
                if said == expected[mine]:
                    verdict = "harmless, same"
                elif mutation.consistent and not unchanged:
                    verdict = "harmless, else"
                else:
                    verdict, said = "harmful", "damage that went unnoticed"
            report.counts[mutation.kind, verdict] += 1
            if verdict == "harmful":
                report.harmful.append(f"{entries[mine].name} #{number} {mutation.kind}: {said}")
            shutil.rmtree(folder)
    report.seconds = time.perf_counter() - started
    report.most_bytes = getattr(judge, "most_bytes", 0)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", type=Path, help="folders of entries; all of zoo/ if left out")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    entries = given.entries or sorted(manifest.parent for manifest in (ROOT / "zoo").glob("*/*/manifest.json"))
    judge = Judge()
    report = fuzz(entries, given.count, given.seed, judge)
    judge.stop()
    print(f"{given.count} mutations of {', '.join(str(entry) for entry in entries)}, seed {given.seed}\n")
    print(report.text())
    if report.harmful:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
