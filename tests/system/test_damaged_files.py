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


def fuzzed(fuzz_files, kinds, each, seed, path=None):
    log = fuzz_files.Log(path, seed)
    fuzz_files.fuzz_files(dict.fromkeys(kinds, each), seed, log)
    return log


def test_no_damage_is_a_raw_error(fuzz_files):
    pytest.importorskip("pyarrow")
    log = fuzzed(fuzz_files, QUICK, 12, 0)
    assert log.faults == []
    assert sum(log.counts[kind, "refused"] for kind in QUICK) > 50


def test_a_killed_run_goes_on_where_it_was(fuzz_files, tmp_path):
    """The log of a run that was killed while it wrote its second line."""
    whole = fuzzed(fuzz_files, ["host"], 60, 3, tmp_path / "whole")
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    (tmp_path / "torn").write_text(lines[0] + lines[1][:40])
    assert fuzzed(fuzz_files, ["host"], 60, 3, tmp_path / "torn").counts == whole.counts
    assert sum(whole.counts.values()) == 60


def test_raw_errors_and_signals_would_be_noticed(fuzz_files):
    judge = fuzz_files.Judge(signal.raise_signal)
    try:
        outcomes = [judge(number).outcome for number in (0, -1, signal.SIGSEGV, 0)]  # 0 means that no error is raised.
    finally:
        judge.stop()
    assert outcomes == ["read", "raw error", "signal", "read"]


@pytest.mark.slow
def test_no_damage_is_a_raw_error_in_a_tenth_of_all(fuzz_files):
    log = fuzzed(fuzz_files, fuzz_files.KINDS, 5000 // len(fuzz_files.KINDS), 1)
    assert log.faults == []
