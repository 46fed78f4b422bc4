"""Quantities as people write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulecast.units import duration, number, scaled, si

POWERS = {"T": 12, "G": 9, "M": 6, "k": 3, "": 0, "m": -3, "µ": -6, "n": -9, "p": -12}
SIZES = st.floats(-12, 14.99).map(lambda exponent: 10.0**exponent)


@given(SIZES, st.sampled_from((-1, 1)))
def test_three_digits_from_1_to_999_and_a_prefix(size, sign):
    digits, prefix = re.fullmatch(r"(-?[0-9.]+) (\D?)s", si(sign * size, "s")).groups()
    assert float(digits) * 10.0 ** POWERS[prefix] == pytest.approx(sign * size, rel=0.00501)
    assert 1 <= abs(float(digits)) <= 999
    assert len(re.sub(r"[-.]", "", digits)) <= 3
    # A scale for several values, the largest of which is this one: it is at least 1 of the unit.
    factor, unit = scaled(sign * size, "s")
    assert factor == pytest.approx(10.0 ** POWERS[unit.removesuffix("s")])
    assert 1 <= size / factor <= 1000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "-"), (0, "0 s"), (1, "1 s"), (0.0214, "21.4 ms"), (5e-15, "5e-15 s"), (-0.5, "-500 ms")),
        # 999.5 and more is the next prefix, and never "1e+03". This holds beyond the last prefix as well.
        *((999.4, "999 s"), (999.6, "1 ks"), (0.9996, "1 s"), (0.9994, "999 ms"), (0.9997e-3, "1 ms")),
        *((3e15, "3000 Ts"), (1.0002e15, "1000 Ts"), (0.9994e15, "999 Ts")),
    ],
)
def test_texts_of_quantities(value, text):
    assert si(value, "s") == text


def test_a_scale_begins_at_its_prefix_and_what_is_below_all_has_the_plain_unit():
    assert scaled(0.001, "s") == (1e-3, "ms")
    assert scaled(0.0, "s") == scaled(1e-15, "s") == (1.0, "s")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "-"), (0, "0"), (3.0, "3"), (21.44, "21.4"), (-0.05, "-0.05")),
        *((1.06e-5, "0.0000106"), (1234.5, "1,234"), (99490.4, "99,490")),
    ],
)
def test_numbers_without_a_unit_are_written_in_full(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("time_s", "text"), [(119, "119 s"), (120, "2 min"), (11_520, "3.2 h"), (1e6, "11.6 days"), (1e10, "115,741 days")]
)
def test_durations_are_written_in_full(time_s, text):
    assert duration(time_s) == text
