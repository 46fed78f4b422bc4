"""A short run of benchmarks/fuzz_zoo.py: damaged and hostile entries are refused, or do no harm."""

from collections import Counter

import pytest
from simulated_measurements import simulated_gpu

from conftest import benchmark
from joulecast.datasets import save
from joulecast.predictors.recipes import BoostingRecipe
from joulecast.zoo.training import train_any_gpu

MUTATIONS = 5  # mutations of each kind


@pytest.fixture(scope="module")
def fuzz_zoo():
    pytest.importorskip("resource", reason="limits memory")
    with benchmark("fuzz_zoo") as module:
        yield module


@pytest.fixture(scope="module")
def any_gpu_entry(tmp_path_factory):
    pytest.importorskip("xgboost")
    folder = tmp_path_factory.mktemp("any-gpu")
    datasets = [(save(data, folder / data.card.gpu), data) for data in map(simulated_gpu, ("A30", "T4"))]
    recipe = BoostingRecipe(trees=10, depth=3, learning_rate=0.3, folds=2)
    return train_any_gpu(datasets, (), recipe).save(folder / "zoo")


def fuzzed(fuzz_zoo, entries, number, judge):
    tally = fuzz_zoo.fuzz_entries(entries, dict.fromkeys(fuzz_zoo.KINDS, number), 0, judge)
    outcomes = Counter()
    for (_, outcome), count in tally.counts.items():
        outcomes[outcome] += count
    return tally, outcomes


def test_no_mutation_does_harm(fuzz_zoo, small_entry, any_gpu_entry):
    judge = fuzz_zoo.Judge(fuzz_zoo.read, fuzz_zoo.LIMITS)
    try:
        tally, outcomes = fuzzed(fuzz_zoo, [small_entry, any_gpu_entry], MUTATIONS, judge)
    finally:
        judge.stop()
    assert tally.faults == []
    assert outcomes.total() == MUTATIONS * len(fuzz_zoo.KINDS)
    assert outcomes["refused"] > outcomes.total() / 2


@pytest.mark.slow
def test_no_mutation_of_what_ships_does_harm_in_a_tenth_of_all(fuzz_zoo):
    tally = fuzz_zoo.run((), 360, 0)
    assert tally.faults == []
    assert sum(tally.counts.values()) == 360


def test_harm_would_be_noticed(fuzz_zoo, small_entry):
    """The check itself is checked: an entry that loads after any damage must be noticed."""

    def blind(folder):
        return fuzz_zoo.Verdict("read", str(folder == small_entry))

    tally, outcomes = fuzzed(fuzz_zoo, [small_entry], 2, blind)
    assert outcomes["unnoticed"] == len(tally.faults) >= 5

    def crashing(folder):
        return fuzz_zoo.Verdict("read", "") if folder == small_entry else fuzz_zoo.Verdict("signal", "ended with -11")

    tally, outcomes = fuzzed(fuzz_zoo, [small_entry], 1, crashing)
    assert outcomes["signal"] == len(tally.faults) == len(fuzz_zoo.KINDS)
