"""Zones of powercap: each counter counts once, even if the kernel shows it several times."""

import pytest

from joulecast.metering.cpu import zones

TREES = {
    "one package": (
        {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "uncore", "intel-rapl:1": "psys"},
        {"cpu0": True, "cpu0.core": False, "cpu0.uncore": False, "platform": False},
    ),
    "memory beside packages": (
        {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram", "intel-rapl:1": "package-1", "intel-rapl:1:0": "dram"},
        {"cpu0": True, "ram0": True, "cpu1": True, "ram1": True},
    ),
    "mirrored by memory-mapped registers": (
        {"intel-rapl:0": "package-0", "intel-rapl-mmio:0": "package-0"},
        {"cpu0": True},
    ),
    "memory-mapped registers alone": ({"intel-rapl-mmio:0": "package-0"}, {"cpu0": True}),
    "dies of a package that is there": (
        {"intel-rapl:0": "package-0", "intel-rapl:1": "package-0-die-0", "intel-rapl:2": "package-0-die-1"},
        {"cpu0": True},
    ),
    "dies alone": (
        {"intel-rapl:0": "package-0-die-0", "intel-rapl:1": "package-0-die-1"},
        {"cpu0.die0": True, "cpu0.die1": True},
    ),
    "psys alone": ({"intel-rapl:0": "psys"}, {"platform": True}),
    "none": ({}, {}),
}


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_each_counter_is_counted_once(tmp_path, tree):
    names, expected = TREES[tree]
    for zone, name in names.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
    assert {zone.device: zone.counted for zone in zones(tmp_path)} == expected
