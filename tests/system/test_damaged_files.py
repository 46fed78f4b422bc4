"""A short run of benchmarks/fuzz_files.py: damaged files of every kind raise errors of joulecast."""

import signal

import pytest

from conftest import benchmark

QUICK = ["network", "recipe", "campaign", "gpu", "recording", "counters", "host", "dataset"]
QUICK += ["nicolai2025", "miopen2024"]


@pytest.fixture(scope="module")
def fuzz_files():
    pytest.importorskip("resource", reason="counts memory")
    with benchmark("fuzz_files") as module:
        yield module


@pytest.fixture(scope="module")
def judge(fuzz_files):
    judge = fuzz_files.Judge(fuzz_files.read)
    yield judge
    judge.stop()


@pytest.mark.parametrize("which", ["files", "entries"])
def test_no_damage_does_harm(fuzz_files, judge, which):
    """Of files, and of zoo entries in all forms but the one that needs torch."""
    pytest.importorskip("pyarrow")
    kinds = QUICK if which == "files" else fuzz_files.ENTRIES[:-1]
    tally = fuzz_files.fuzz_files(dict.fromkeys(kinds, 15), 0, judge)
    assert tally.faults == []
    assert sum(tally.counts[kind, "refused"] for kind in kinds) > 50


def test_raw_errors_and_signals_would_be_noticed(fuzz_files):
    judge = fuzz_files.Judge(signal.raise_signal)
    try:
        outcomes = [judge(number).outcome for number in (0, -1, signal.SIGSEGV, 0)]  # 0 means that no error is raised.
    finally:
        judge.stop()
    assert outcomes == ["read", "raw error", "signal", "read"]


def test_an_entry_that_loads_after_any_damage_would_be_noticed(fuzz_files):
    def blind(case):
        return fuzz_files.Verdict("read", "whole" if "whole" in str(case[1]) else "damaged")

    tally = fuzz_files.fuzz_files({"a30/forest-inference": 40}, 0, blind)
    assert 5 <= tally.counts["a30/forest-inference", "unnoticed"] == len(tally.faults) < 40


@pytest.mark.slow
def test_no_damage_does_harm_in_a_tenth_of_all(fuzz_files):
    assert fuzz_files.run((), 5000, 1).faults == []
