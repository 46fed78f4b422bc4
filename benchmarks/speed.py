"""How quick predicting is, against a reference in the same run: `python benchmarks/speed.py`.

Writes benchmarks/SPEED.md. Cold commands alternate with the reference, so that a slow moment of the machine hits both.
"""

from __future__ import annotations

import itertools
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from many import BLOCKS, candidates, table_of

import joulecast
from joulecast import Operation
from joulecast.extraction import network_of
from joulecast.extraction.cache import recall, remember
from joulecast.extraction.models.torchvision_models import build, import_torchvision, model_names
from joulecast.extraction.templates import store
from joulecast.hardware import gpus
from joulecast.operations.kinds import KINDS
from joulecast.predictors.predictor import OperationPredictor
from joulecast.system.resources import shipped
from joulecast.units import number
from joulecast.zoo import find_predictor
from joulecast.zoo.entry import load_any

COLD_REPEATS = 9
WARM_REPEATS = 50
OUT = Path(__file__).with_name("SPEED.md")
PREDICT = [sys.executable, "-m", "joulecast", "predict", "resnet50", "32,3,224,224", "--gpu", "A30"]
IMPORT_TORCH = [sys.executable, "-c", "import torch"]

# Peak memory of a process that extracts ResNet-50, BERT and Llama, in kB, including libraries.
PEAK = """
import resource, joulecast
joulecast.extract("resnet50", (32, 3, 224, 224), whitelist=frozenset(joulecast.operations.kinds.KINDS))
joulecast.extract("bert_base", (8, 128), whitelist=frozenset(joulecast.operations.kinds.KINDS))
joulecast.extract("llama2_7b", (1, 1), cache_length=2048, whitelist=frozenset(joulecast.operations.kinds.KINDS))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


NOTES = """\
Cold commands run with byte code, as after an installation by pip; both of a pair do.

A predictor of one GPU stores what it has computed of each operation, because the candidates of a search and the
networks of a service share most of theirs. Operations that are new to the process take 6 to 7 us more on one core:
Python hashes each, puts its sizes into a row and makes its digest. FLOPs and bytes are computed from these rows, for
all operations together that differ in sizes alone.

No other tool stands beside these numbers. nn-Meter 2.0 installs from PyPI, but downloads its predictors from GitHub
when it is first used, as pickles, and they are of phones' processors; NeuSight is not on PyPI, and its predictors are
files of its repository. Neither can be run from packages alone.
"""

# Not ru_maxrss, which starts with the value of the parent process.
BEST_PEAK = r"""
import re, pathlib, joulecast
joulecast.best("resnet50", (32, 3, 224, 224), precision=["default", "fp16"])
print(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


def unique_operations(count: int, seed: int = 0) -> list[Operation]:
    """Convolutions, linear layers, products, relus and batch norms of random sizes, all of them different."""
    draw, operations = random.Random(seed), {}
    while len(operations) < count:
        batch, channels, side = draw.choice([1, 2, 4, 8, 16, 32, 64]), draw.randint(3, 1024), draw.randint(4, 112)
        out = draw.randint(8, 1024)
        image = (batch, channels, side, side)
        convolution = {"out_channels": out, "kernel_size": draw.choice([1, 3]), "padding": 1}
        for operation in (
            Operation("conv2d", [image], convolution, precision="tf32"),
            Operation("linear", [(batch * side, channels)], {"out_features": out}),
            Operation("matmul", [(batch, side, channels), (batch, channels, out)]),
            Operation("relu", [image]),
            Operation("batch_norm", [image]),
        ):
            operations[operation] = None
    return list(operations)[:count]


def batch_per_s(count: int = 20_000) -> tuple[float, float, float]:
    """Operations (time and power) per second of wall time: predicted before, by another predictor only, and never."""
    operations, predictor = unique_operations(count), find_predictor("A30", "inference").operations
    predictor.predict(operations[:1000])  # starts ONNX Runtime
    never_s, new_s, again_s = [], [], []
    for _ in range(7):
        fresh = _forgotten(predictor)
        new_s.append(took_s(lambda fresh=fresh: fresh.predict(operations)))
        again_s.append(took_s(lambda fresh=fresh: fresh.predict(operations)))
    for seed in range(1, 4):
        fresh, others = _forgotten(predictor), unique_operations(count // 4, seed)
        never_s.append(4 * took_s(lambda fresh=fresh, others=others: fresh.predict(others)))
    return count / min(again_s), count / min(new_s), count / min(never_s)


def _forgotten(predictor: OperationPredictor) -> OperationPredictor:
    """The predictor without the tables of what it has predicted, which are its chip's."""
    return replace(predictor, chips={mode: replace(chip) for mode, chip in predictor.chips.items()})


def took_s(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def wall_s(command: list[str]) -> float:
    return took_s(lambda: subprocess.run(command, check=True, capture_output=True, env=_with_byte_code()))


@cache
def _with_byte_code() -> dict[str, str]:
    """The environment, with byte code stored in a folder of its own; a checkout may have none."""
    without = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**without, "PYTHONPYCACHEPREFIX": tempfile.mkdtemp(prefix="joulecast-speed-")}


def warm_s(work: Callable[[], object], repeats: int = WARM_REPEATS) -> float:
    work()
    return statistics.median(took_s(work) for _ in range(repeats))


def printed_mb(program: str) -> str:
    """The number of kB that a program prints, in MB."""
    kilobytes = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return f"{float(kilobytes) / 1024:.0f} MB"


def rows() -> Iterator[tuple[str, str, str, str]]:
    """What is measured, its time or size, the same against a reference, and the goal."""
    wall_s(PREDICT), wall_s(IMPORT_TORCH)
    pairs = [(wall_s(PREDICT), wall_s(IMPORT_TORCH)) for _ in range(COLD_REPEATS)]
    cold, torch = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = f"{statistics.median(a / b for a, b in pairs):.2f} x `import torch` ({torch:.2f} s)"
    yield "cold `joulecast predict resnet50`, from its template", f"{cold:.2f} s", ratio, "< 0.3 x"

    def ms(
        what: str, goal_ms: int, work: Callable[[], object], repeats: int = WARM_REPEATS
    ) -> tuple[str, str, str, str]:
        return what, f"{number(1e3 * warm_s(work, repeats))} ms", "", f"< {goal_ms} ms"

    shape, both, sides = (32, 3, 224, 224), ["default", "fp16"], itertools.count(100)
    network = joulecast.extract("resnet50", shape)
    yield ms("ResNet-50 asked for again, from its operations", 1, lambda: joulecast.predict(network, None, "A30"))
    yield ms("ResNet-50 asked for again, by name", 1, lambda: joulecast.predict("resnet50", shape, "A30"))
    what = "ResNet-50 by name, at a shape that was not asked for before"
    yield ms(what, 2, lambda: joulecast.predict("resnet50", (32, 3, next(sides), 225), "A30"))
    what = f"best of {len(gpus())} GPUs x 40 clocks x 2 precisions for ResNet-50, asked for again"
    yield ms(what, 50, lambda: joulecast.best("resnet50", shape, precision=both), 15)
    what = "the same at a shape that was not asked for before"
    yield ms(what, 150, lambda: joulecast.best("resnet50", (32, 3, next(sides), 225), precision=both), 15)
    many = {
        f"predict_many of 5,000 networks of {3 * BLOCKS} operations, as lists": [
            [(operation, 1) for operation in each] for each in candidates(5_000)
        ],
        "the same as a table": table_of(5_000),
    }
    for what, networks in many.items():
        seconds = warm_s(lambda networks=networks: joulecast.predict_many(networks, "A30"), 3)
        yield what, f"{seconds:.2f} s", f"{5000 / seconds:,.0f} networks/s", "< 3 s"
    yield "peak memory of a process that asks for the best of all GPUs", printed_mb(BEST_PEAK), "", "< 300 MB"
    yield ms(
        "warm answer of ResNet-50's template at a new shape",
        5,
        lambda: joulecast.extract("resnet50", (32, 3, next(sides), 225)),
    )
    size_bytes = sum(path.stat().st_size for path in store.FOLDER.iterdir())
    yield f"templates of all {len(store.names())} models in the package", f"{size_bytes / 1e6:.2f} MB", "", "< 3 MB"
    import_torchvision()
    yield ms("warm extraction of ResNet-50, built and traced", 150, lambda: network_of(build("resnet50"), shape), 15)
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, JOULECAST_CACHE=folder):
        remember(network, "resnet50", ["benchmark"], ["aten.linear"])
        yield ms("the same again, from the cache of extractions", 5, lambda: recall("resnet50", ["benchmark"]))
    # With another whitelist, neither templates nor the cache are used.
    extract = partial(joulecast.extract, whitelist=frozenset(KINDS))
    yield ms("warm extraction of BERT-base, 8 x 128", 1500, lambda: extract("bert_base", (8, 128)), 5)
    yield ms("warm extraction of Llama-2-7B, prefill of 2048", 1500, lambda: extract("llama2_7b", (1, 2048)), 5)
    what = "warm extraction of Llama-2-7B, one token after 2048"
    yield ms(what, 1500, lambda: extract("llama2_7b", (1, 1), cache_length=2048), 5)
    start = time.perf_counter()
    for name in model_names():
        network_of(build(name), (1, 3, 299, 299) if name == "inception_v3" else (1, 3, 224, 224))
    seconds = time.perf_counter() - start
    yield "extraction of all 80 classification models, built and traced", f"{seconds:.1f} s", "", "< 60 s"
    yield "peak memory of a process that extracts these", printed_mb(PEAK), "", "< 1 GB"
    cores = len(os.sched_getaffinity(0))
    whats = (
        f"operations predicted in a second, 20,000 unique ones that this predictor has seen, {cores} cores",
        "the same by a predictor that has not seen them: regressors included",
        "the same where no predictor has seen them: their numbers and digests included",
    )
    for what, per_s in zip(whats, batch_per_s(), strict=True):
        yield what, f"{per_s:,.0f}", "", "1,000,000 on two cores"
    for name in ("a30/forest-inference", "any-gpu/forest"):
        yield ms(f"loading {name}", 100, lambda name=name: load_any(shipped("zoo") / name), 9)


def main() -> None:
    lines = [
        "# How quick it is",
        "",
        f"Made by `python benchmarks/speed.py`; do not edit. {platform.machine()}, Python {platform.python_version()}, "
        f"median of {COLD_REPEATS} cold and {WARM_REPEATS} warm repeats.",
        "",
        "| what | time | against a reference | goal |",
        "| --- | --- | --- | --- |",
        *("| " + " | ".join(row) + " |" for row in rows()),
        "",
        NOTES,
    ]
    OUT.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
