"""What is kept between questions: bounded in bytes, whoever asks, and given back."""

import gc

import joulecast
from joulecast import Operation
from joulecast.predictors.physics import cached as kept
from joulecast.system.caches import RESULTS, BoundedCache


def test_a_cache_is_bounded_in_bytes_and_drops_what_was_not_used_for_longest():
    cache: BoundedCache[int, bytes] = BoundedCache(100)
    for key in range(50):
        cache.put(key, bytes(10), 10)
        cache.get(0)
    assert (len(cache), cache.size) == (10, 100)
    assert cache.get(0) is not None
    assert cache.get(1) is None
    cache.put(99, bytes(101), 101)
    assert cache.get(99) is None
    cache.put(0, bytes(95), 95)
    assert (len(cache), cache.size) == (1, 95)


def living() -> int:
    """Operations in memory."""
    gc.collect()
    return sum(type(each) is Operation for each in gc.get_objects())


def test_no_other_cache_holds_the_operations_of_questions(monkeypatch):
    monkeypatch.setattr(kept, "MOST_OPERATIONS", 0)  # a table with a bound of its own

    def ask(first: int) -> None:
        shapes = [(first, 8 + n) for n in range(10)]
        linear = [(Operation("linear", [shape], {"out_features": 16}, precision="tf32"), 1) for shape in shapes]
        for gpu in ("A30", "H100 SXM", "T4"):
            joulecast.predict(linear, gpu=gpu).to_dict(tree=True)

    ask(99)  # whatever is loaded once
    RESULTS.clear()
    before = living()
    for width in range(5):
        ask(100 + width)
    assert RESULTS.size <= 32_000_000
    RESULTS.clear()
    assert living() == before
