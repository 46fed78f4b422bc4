"""Damage every kind of file that joulecast reads, in thousands of ways, and see that each is refused in its own words.

    python benchmarks/fuzz_files.py                                    # 5,000 cases over all kinds
    python benchmarks/fuzz_files.py --count 50000 --seed 1 onnx pt2

Bytes are flipped, cut out, doubled and inserted; values of JSON, TOML and of the graphs of .pt2 files are replaced by
values that nobody meant, with digests that fit again where there are any. Zoo entries have a script of their own
(fuzz_zoo.py). What may come out: the file is read, or one JoulecastError. Raw errors, signals, more than 1 GB and more
than 20 s are faults; the script ends with 1 if there are any.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import multiprocessing
import random
import resource
import shutil
import tempfile
import time
import tomllib
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS, MOST_BYTES = 20.0, 1 << 30
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -1e308, 0.5, float("nan"), float("inf")),
    *("", "x" * 5000, "../../x", "/etc/passwd", "\0", "nan", [], {}, [[]], [0] * 500, {"a": {"b": {}}}, [None]),
)


# The files that are damaged, each made in a folder of its own; what reads them is below.


def make_onnx(folder: Path) -> Path:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="/a/conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], name="/a/relu"),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Range", ["zero", "four", "one"], ["range"]),
        helper.make_node("Gather", ["s", "range"], ["again"]),
        helper.make_node("Reshape", ["r", "again"], ["t"]),
        helper.make_node("double", ["t"], ["y"], domain="own"),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    double = helper.make_function("own", "double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets)
    weights = {"w": np.zeros((6, 4, 3, 3), np.float32), "b": np.zeros(6, np.float32)}
    weights |= {name: np.array(n, np.int64) for name, n in {"zero": 0, "one": 1, "four": 4}.items()}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[double]), path)
    return path


def make_pt2(folder: Path) -> Path:
    import warnings

    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    model.append(torch.nn.MaxPool2d(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.eval(), (torch.zeros(2, 3, 8, 8),), strict=False)
        torch.export.save(program, folder / "m.pt2")
    return folder / "m.pt2"


def make_network(folder: Path) -> Path:
    import joulecast

    joulecast.extract("resnet18", (1, 3, 64, 64)).save(folder / "m.json")
    return folder / "m.json"


def make_config(folder: Path) -> Path:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 100, "hidden_act": "gelu", **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def make_recipe(folder: Path) -> Path:
    shutil.copy(ROOT / "predictors" / "any-gpu.toml", folder / "recipe.toml")
    return folder / "recipe.toml"


def make_campaign(folder: Path) -> Path:
    shutil.copy(next(iter(sorted((ROOT / "profiling").glob("*.toml")))), folder / "campaign.toml")
    return folder / "campaign.toml"


def make_gpu(folder: Path) -> Path:
    rows = tomllib.loads((ROOT / "joulecast/hardware/gpus/ampere.toml").read_text())
    described = next(row for row in rows["gpu"] if "A30" in row["name"])
    (folder / "gpu.toml").write_text(toml_text({**described, "name": "Mine", "aliases": ["Mine"]}))
    return folder / "gpu.toml"


def make_journal(folder: Path) -> Path:
    from joulecast.profiling.journal import Journal

    power = {"power_w": 50.0, "power_std_w": 1.0, "naive_w": 50.0, "clock_mhz": 900, "temperature_c": 40}
    timing = {"time_s": 1e-4, "device_time_s": 1e-4, "iterations": 3, "start_s": 0.0, "end_s": 1.0}
    with Journal(folder / "journal.jsonl", {"name": "fuzz", "seed": 0, "device": "A30"}) as journal:
        for size in (2, 3):
            record = {"key": str(size), "clock_mhz": None, "status": "ok", "started": "2026-01-01"}
            record |= {"operation": {"kind": "relu", "input_shapes": [[size, size]]}}
            journal.append({**record, "timing": {**timing, "warnings": []}, "power": {**power, "warnings": []}})
    return folder / "journal.jsonl"


def make_dataset(folder: Path) -> Path:
    from joulecast import Operation
    from joulecast.datasets import Card, Dataset, Measurement, save

    rows = [Measurement(Operation("relu", [(n, 8)]), 1e-4, 50.0, 5e-3, campaign="c", method="m") for n in range(1, 20)]
    return save(Dataset(Card("NVIDIA A30", None, "fuzz", "none", {"m": "made up"}), tuple(rows), ()), folder / "data")


# What reads them.


def read_model(path: Path) -> None:
    import joulecast

    shape = (1, 8) if path.name == "config.json" else None
    network = joulecast.extract(path, shape)
    joulecast.predict(network, None, "A30")


def read_recipe(path: Path) -> None:
    from joulecast.predictors.fitting.recipes import load_recipe

    load_recipe(path)


def read_campaign(path: Path) -> None:
    from joulecast.profiling.campaign import load_campaign

    load_campaign(path)


def read_gpu(path: Path) -> None:
    import joulecast
    from joulecast import Operation

    joulecast.predict([(Operation("relu", [(32, 64)]), 1)], None, str(path))


def read_journal(path: Path) -> None:
    from joulecast.profiling.session import finish

    finish(path.parent)


def read_dataset(path: Path) -> None:
    from joulecast.datasets import load

    load(path)


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], None]]] = {
    "onnx": (make_onnx, read_model),
    "pt2": (make_pt2, read_model),
    "network": (make_network, read_model),
    "config": (make_config, read_model),
    "recipe": (make_recipe, read_recipe),
    "campaign": (make_campaign, read_campaign),
    "gpu": (make_gpu, read_gpu),
    "journal": (make_journal, read_journal),
    "dataset": (make_dataset, read_dataset),
}
"""Kind of file -> what makes a good one, and what reads it."""


# Damage


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them flipped, cut out, doubled, or others between them."""
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


def edited(value: Any, rng: random.Random) -> Any:
    """A JSON value with one value in it replaced, left out or repeated."""
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
        elif change < 0.3 and isinstance(inner, int | float):
            node[key] = inner * rng.choice([-1, 0, 1000, 10**9])
        else:
            node[key] = rng.choice(ODD)
        return value


def toml_text(value: Any, name: str = "") -> str:
    """Tables as TOML; JSON's way of writing values is TOML's but for null."""
    plain = {key: item for key, item in value.items() if not isinstance(item, dict)}
    lines = [f"[{name}]"] if name else []
    lines += [f"{json.dumps(key)} = {json.dumps(item)}" for key, item in plain.items()]
    for key, item in value.items():
        if isinstance(item, dict):
            lines.append(toml_text(item, f"{name}.{json.dumps(key)}" if name else json.dumps(key)))
    return "\n".join(lines) + "\n"


def damage(path: Path, rng: random.Random) -> None:
    """Damage a file, or one of a folder's, by bytes or by somebody who knows the format."""
    if path.is_dir():
        chosen = rng.choice(sorted(path.iterdir()))
        damage(chosen, rng)
        card = path / "card.json"
        if chosen != card and rng.random() < 0.7:
            content = json.loads(card.read_text())
            content["files"][chosen.name]["sha256"] = hashlib.sha256(chosen.read_bytes()).hexdigest()
            card.write_text(json.dumps(content))
        return
    data = path.read_bytes()
    knows = rng.random() < 0.6
    if path.suffix == ".json" and knows:
        path.write_text(json.dumps(edited(json.loads(data), rng)))
    elif path.suffix == ".toml" and knows:
        path.write_text(toml_text(edited(tomllib.loads(data.decode()), rng)))
    elif path.suffix == ".jsonl" and knows:
        lines = data.splitlines()
        place = rng.randrange(len(lines))
        record = edited(json.loads(lines[place]), rng)
        text = json.dumps({k: v for k, v in record.items() if k != "crc32"}).encode().removesuffix(b"}")
        lines[place] = b'%b, "crc32": "%08x"}' % (text, zlib.crc32(text, place + 1))
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif path.suffix == ".pt2" and knows:
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
    else:
        path.write_bytes(damaged(data, rng))


# Judging


def worker(pipe: Connection) -> None:
    """Read files, one after the other: what came of it, and the most memory so far of this process and its children."""
    import warnings

    from joulecast.errors import JoulecastError

    warnings.simplefilter("ignore")
    while True:
        kind, path = pipe.recv()
        try:
            KINDS[kind][1](path)
            verdict, said = "read", ""
        except JoulecastError as error:
            verdict, said = "refused", error.what
        except BaseException as error:  # noqa: BLE001  # that is what is looked for
            verdict, said = "raw error", f"{type(error).__name__}: {error}"[:200]
        pipe.send((verdict, said, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


class Judge:
    """A worker process, and another one where it died or hung."""

    def __init__(self) -> None:
        self._process: Any = None

    def __call__(self, kind: str, path: Path) -> tuple[str, str]:
        """What comes of reading a file."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=worker, args=(theirs,))
            self._process.start()
            self._base_bytes = 0
        self._pipe.send((kind, path))
        started_s = time.monotonic()
        try:
            # (the libraries are imported meanwhile, once)
            if not self._pipe.poll(MOST_SECONDS + 100):
                raise EOFError("it hangs")
            verdict, said, most_bytes = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.stop()
            return "signal", str(error)
        seconds = time.monotonic() - started_s
        grown, self._base_bytes = most_bytes - (self._base_bytes or most_bytes), most_bytes
        if grown > MOST_BYTES:
            return "too much memory", f"{grown / 1e9:.1f} GB"
        if seconds > MOST_SECONDS + 5:
            return "too slow", f"{seconds:.0f} s"
        return verdict, said

    def stop(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def fuzz(kinds: list[str], count: int, seed: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Damage and read `count` files; counts by kind and outcome, and a line for every fault."""
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    judge = Judge()
    with tempfile.TemporaryDirectory() as scratch:
        good = {}
        for kind in kinds:
            folder = Path(scratch) / "good" / kind
            folder.mkdir(parents=True)
            good[kind] = KINDS[kind][0](folder)
        try:
            for number in range(count):
                rng = random.Random(f"{seed}-{number}")
                kind = kinds[number % len(kinds)]
                folder = Path(scratch) / "case"
                shutil.copytree(good[kind].parent, folder)
                path = folder / good[kind].name
                damage(path, rng)
                verdict, said = judge(kind, path)
                counts[kind, verdict] += 1
                if verdict not in ("read", "refused"):
                    faults.append(f"{kind} #{number}: {verdict}: {said}")
                shutil.rmtree(folder)
        finally:
            judge.stop()
    return counts, faults


def main() -> None:
    """Fuzz, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all if left out")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started_s = time.monotonic()
    counts, faults = fuzz(given.kinds or list(KINDS), given.count, given.seed)
    outcomes = ("read", "refused", "raw error", "signal", "too much memory", "too slow")
    print(f"{'':10}" + "".join(f"{outcome:>16}" for outcome in outcomes))
    for kind in given.kinds or KINDS:
        print(f"{kind:10}" + "".join(f"{counts[kind, outcome]:>16}" for outcome in outcomes))
    print(f"{time.monotonic() - started_s:.0f} s, seed {given.seed}")
    print("\n".join(faults[:100]))
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
