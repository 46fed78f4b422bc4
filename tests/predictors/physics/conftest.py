"""Every test of physics works out what it checks: what was worked out for another one is forgotten."""

from __future__ import annotations

import gc
from functools import lru_cache

import pytest

from joulecast.predictors.physics import clock, features, library, relative  # noqa: F401  (these import all others)

_CACHE = type(lru_cache(lambda: 0))


@pytest.fixture(scope="session")
def caches():
    found = [each for each in gc.get_objects() if isinstance(each, _CACHE)]
    return [each for each in found if (each.__module__ or "").startswith("joulecast.predictors.physics")]


@pytest.fixture(autouse=True)
def forgotten(caches):
    for each in caches:
        each.cache_clear()
