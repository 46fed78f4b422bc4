"""Fits in parallel processes."""

import pytest

from joulecast.system.cluster import in_parallel

CALLS = [(7, 2), (9, 4), (1, 3)]


@pytest.mark.parametrize("worthwhile", [True, False])
def test_results_come_in_the_order_of_the_calls(worthwhile):
    pytest.importorskip("joblib")
    assert [*in_parallel(divmod, CALLS, worthwhile=worthwhile, what="divisions")] == [(3, 1), (2, 1), (0, 1)]


def test_an_error_in_a_process_is_raised_here():
    pytest.importorskip("joblib")
    with pytest.raises(ZeroDivisionError):
        list(in_parallel(divmod, [*CALLS, (1, 0)], worthwhile=True, what="divisions"))
