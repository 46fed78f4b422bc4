"""Many rows at once give the values that each gives alone."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from joulecast.predictors import batches
from joulecast.predictors.batches import asked_together, in_batches, over_cores


@pytest.mark.parametrize("count", [0, 1, 511, 512, 5000])
@pytest.mark.parametrize("cores", [1, 3])
def test_every_row_gets_its_own_values(count: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "cores", lambda: cores)
    rows = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    sums, first = in_batches(lambda some: (some.sum(axis=1), 2.0 * some[:, 0]), rows, [rows[:, 1] > 0, rows[:, 2]])
    assert np.array_equal(sums, rows.sum(axis=1).astype(float))
    assert np.array_equal(first, 2.0 * rows[:, 0])


def test_alike_rows_are_seen_together() -> None:
    rows = np.arange(1000, dtype=np.float32).reshape(-1, 1)
    seen = []
    in_batches(lambda some: (seen.append(some[:, 0]) or some[:, 0],), rows, [rows[:, 0] % 2, -rows[:, 0]])
    assert np.array_equal(seen[0][:500], np.arange(998, -1, -2))


def test_numpy_starts_no_threads_in_ours_and_has_its_own_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "cores", lambda: 2)
    blas = ThreadpoolController().select(user_api="blas")

    def threads() -> set[int]:
        return {library["num_threads"] for library in blas.info()}

    with blas.limit(limits=2):
        before = threads()
        assert over_cores(lambda _: threads(), [1, 2]) == [{1}, {1}]
        assert threads() == before == {2}


def test_regressors_are_asked_once_for_all_of_their_tables() -> None:
    asked = []

    def first(rows):
        asked.append(len(rows))
        return rows[:, 0]

    tables = [np.full((count, 2), float(count), dtype=np.float32) for count in (1, 2, 3, 600)]
    found = asked_together([first, lambda rows: -rows[:, 1], first, first], tables)
    assert [values.tolist() for values in found] == [[1.0], [-2.0] * 2, [3.0] * 3, [600.0] * 600]
    assert asked == [604]
    assert asked_together([], []) == []
