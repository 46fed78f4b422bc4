"""A short run of benchmarks/fuzz_files.py: damaged files of every kind raise errors of joulecast."""

import signal

import pytest

from conftest import benchmark

QUICK = [
    "network",
    "recipe",
    "campaign",
    "gpu",
    "recording",
    "trace",
    "counters",
    "host",
    "dataset",
    "nicolai2025",
    "miopen2024",
]


@pytest.fixture(scope="module")
def fuzz_files():
    pytest.importorskip("resource", reason="counts memory")
    with benchmark("fuzz_files") as module:
        yield module


def test_no_damage_is_a_raw_error(fuzz_files):
    pytest.importorskip("pyarrow")
    tally = fuzz_files.fuzz_files(dict.fromkeys(QUICK, 12), 0)
    assert tally.faults == []
    assert sum(tally.counts[kind, "refused"] for kind in QUICK) > 50


def test_raw_errors_and_signals_would_be_noticed(fuzz_files):
    judge = fuzz_files.Judge(signal.raise_signal)
    try:
        outcomes = [judge(number).outcome for number in (0, -1, signal.SIGSEGV, 0)]  # 0 means that no error is raised.
    finally:
        judge.stop()
    assert outcomes == ["read", "raw error", "signal", "read"]


@pytest.mark.slow
def test_no_damage_is_a_raw_error_in_a_tenth_of_all(fuzz_files):
    assert fuzz_files.run((), 5000, 1).faults == []
