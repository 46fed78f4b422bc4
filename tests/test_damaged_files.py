"""A short run of benchmarks/fuzz_files.py: damaged files of every kind are refused in our own words."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz_files.py"
QUICK = ["network", "recipe", "campaign", "gpu", "journal"]


@pytest.fixture(scope="module")
def fuzz_files():
    pytest.importorskip("resource", reason="counts memory")
    spec = importlib.util.spec_from_file_location("fuzz_files", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    # The worker, a spawned process, imports it by this name.
    sys.path.insert(0, str(BENCHMARK.parent))
    sys.modules["fuzz_files"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARK.parent))
    del sys.modules["fuzz_files"]


def test_no_damage_is_a_raw_error(fuzz_files):
    counts, faults = fuzz_files.fuzz(QUICK, 100, 0)
    assert faults == []
    assert sum(counts[kind, "refused"] for kind in QUICK) > 40


@pytest.mark.slow
def test_no_damage_is_a_raw_error_in_a_tenth_of_all(fuzz_files):
    counts, faults = fuzz_files.fuzz(list(fuzz_files.KINDS), 5000, 1)
    assert faults == []
    assert sum(counts.values()) == 5000
