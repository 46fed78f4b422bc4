"""A short run of benchmarks/fuzz_zoo.py: damaged and hostile entries are refused, or do no harm."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from conftest import simulated_gpu
from joulecast.datasets import save
from joulecast.predictors.recipes.boosting import BoostingRecipe
from joulecast.zoo.any_gpu_training import train_any_gpu

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz_zoo.py"
MUTATIONS = 60


@pytest.fixture(scope="module")
def fuzz_zoo():
    pytest.importorskip("resource", reason="limits memory")
    spec = importlib.util.spec_from_file_location("fuzz_zoo", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    # The worker, a spawned process, imports it by this name.
    sys.path.insert(0, str(BENCHMARK.parent))
    sys.modules["fuzz_zoo"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARK.parent))
    del sys.modules["fuzz_zoo"]


@pytest.fixture(scope="module")
def any_gpu_entry(tmp_path_factory):
    pytest.importorskip("xgboost")
    folder = tmp_path_factory.mktemp("any-gpu")
    datasets = [(save(data, folder / data.card.gpu), data) for data in map(simulated_gpu, ("A30", "T4"))]
    recipe = BoostingRecipe(trees=10, depth=3, learning_rate=0.3, folds=2)
    return train_any_gpu(datasets, (), recipe).save(folder / "zoo")


def test_no_mutation_does_harm(fuzz_zoo, small_entry, any_gpu_entry):
    judge = fuzz_zoo.Judge()
    try:
        report = fuzz_zoo.fuzz([small_entry, any_gpu_entry], MUTATIONS, 0, judge)
    finally:
        judge.stop()
    assert report.harmful == []
    assert sum(report.counts.values()) == MUTATIONS
    refused = sum(count for (_, outcome), count in report.counts.items() if outcome == "refused")
    assert refused > MUTATIONS / 2


def test_harm_would_be_noticed(fuzz_zoo, small_entry):
    """An entry that loads whatever is done to it is harm: the judge is not blind."""
    report = fuzz_zoo.fuzz([small_entry], 20, 0, lambda folder: ("loaded", str(folder == small_entry)))
    assert len(report.harmful) >= 5
    crashed = fuzz_zoo.fuzz(
        [small_entry], 5, 0, lambda f: ("loaded", "") if f == small_entry else ("harmful", "crashed")
    )
    assert len(crashed.harmful) == 5
