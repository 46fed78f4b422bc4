"""A short run of benchmarks/laws.py: no prediction breaks a law of physics."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from conftest import benchmark
from joulecast.hardware import find_gpu
from joulecast.zoo.catalogue import find_predictor

GPUS = (
    "A30",
    "RTX 2080 Ti",
    "P4",
    "V100 PCIe 16GB",
    "T4",
    "A100 SXM4 80GB",
    "A10",
    "L4",
    "RTX 4090",
    "H100 SXM",
    "B200",
    "MI300X",
)
# What is learned may fall where the batch grows, as measurements do: benchmarks/notes.md says how often.
LEARNED = ("growth of time", "growth of energy")
# A GPU's own predictors of the two modes are fitted independently, and are not compared with each other.
OWN = ("A30", "RTX 2080 Ti")


@pytest.fixture(scope="module")
def laws():
    with benchmark("laws") as module:
        yield module


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", GPUS)
def test_laws_hold(laws, name, mode):
    gpu = find_gpu(name)
    pairs = list(islice(laws.random_pairs(random.Random(f"{name} {mode}"), gpu, mode), 100))
    broken: list[str] = []
    predictors = [find_predictor(gpu, each).operations for each in (mode, "training")]
    found = laws.check(
        predictors[0], predictors[1] if mode == "inference" else None, pairs, 0.6 * gpu.boost_clock_mhz, broken.append
    )
    allowed = (*LEARNED, "training") if name in OWN else LEARNED
    assert not [text for text in broken if not text.startswith(allowed)]
    assert sum(found[law] for law in LEARNED) <= 8  # of 200


def test_a_broken_law_is_found(laws):
    """The check itself is checked: half of the time breaks the data sheet, and a time that shrinks breaks growth."""
    gpu = find_gpu("A30")
    pairs = list(islice(laws.random_pairs(random.Random(0), gpu, "inference"), 60))

    class Halved:
        def __init__(self, operations):
            self.operations = operations
            self.gpu = operations.gpu

        def predict(self, operations, clock_mhz=None):
            found = self.operations.predict(operations, clock_mhz)
            return found.times(0.05 if clock_mhz is None else 0.01, 3.0)

    found = laws.check(Halved(find_predictor(gpu, "inference").operations), None, pairs, 700.0, lambda text: None)
    assert found["floor"] > 10
    assert found["data sheet"] > 10
    assert found["power"] > 10
    assert found["clock"] > 10
