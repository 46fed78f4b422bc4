"""The cache of networks: bounded, and left as it was where the disk takes no more."""

import os

from conftest import full_disk
from joulecast import Network, Operation
from joulecast.extraction import cache

NETWORK = Network.of([(Operation("relu", [(2, 8)]), 1)])
OPERATORS = ("aten.relu",)


def stored(folder):
    return sorted(path.name.split("-")[0] for path in (folder / "networks").iterdir())


def test_what_was_not_asked_for_longest_makes_room(fresh_cache, monkeypatch):
    cache.remember(NETWORK, "a", [], OPERATORS)
    (entry,) = (fresh_cache / "networks").iterdir()
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * entry.stat().st_size + 10)
    for name in ("b", "c"):
        cache.remember(NETWORK, name, [], OPERATORS)
    for age_s, path in enumerate(sorted((fresh_cache / "networks").iterdir(), reverse=True)):
        os.utime(path, (1e9 - age_s, 1e9 - age_s))  # The first is the oldest.
    assert cache.recall("a", []) is not None
    cache.remember(NETWORK, "d", [], OPERATORS)
    assert stored(fresh_cache) == ["a", "c", "d"]
    assert cache.recall("b", []) is None


def test_a_full_disk_leaves_nothing(fresh_cache):
    with full_disk():
        cache.remember(NETWORK, "a", [], OPERATORS)
    assert stored(fresh_cache) == []
    assert cache.recall("a", []) is None
