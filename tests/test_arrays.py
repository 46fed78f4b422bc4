"""Sums whose last bit does not depend on the order of their values."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from joulecast.arrays import front_of, total, totals_by

SECONDS = st.lists(st.floats(0, 1e3).map(lambda x: x * 1e-6), min_size=1, max_size=300)


@given(SECONDS, st.randoms())
def test_a_total_is_the_same_in_any_order_and_in_company(values, rng):
    shuffled = rng.sample(values, len(values))
    whole = float(total(np.array(values)))
    assert float(total(np.array(shuffled))) == whole
    among = totals_by(np.array([1] * len(values) + [0, 2]), np.array([*shuffled, 1e9, 1e-12]), 3)
    assert among[1] == whole
    # math.fsum rounds once, and is exact before that.
    assert math.isclose(whole, math.fsum(values), rel_tol=1e-15, abs_tol=1e-25)


def test_what_is_missing_counts_as_zero_and_nothing_is_zero():
    assert total(np.array([[1.0, np.nan], [np.nan, np.nan]])).tolist() == [1.0, 0.0]
    assert totals_by(np.array([0, 2]), np.array([np.nan, 2.0]), 4).tolist() == [0.0, 0.0, 2.0, 0.0]


def test_the_front_of_points_by_hand():
    #         slow, dear | fast, dear | as fast, dearer | between | as dear as the one before it | unknown | least
    seconds = [5.0, 1.0, 1.0, 2.0, 3.0, 0.5, 4.0]
    joules = [9.0, 8.0, 8.5, 5.0, 5.0, math.nan, 1.0]
    assert front_of(seconds, joules) == [1, 3, 6]
    assert front_of([], []) == []
