"""Quantities as people write them."""

import pytest

from joulecast.units import number, scaled, si


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (0, "J", "0 J"),
        (1, "s", "1 s"),
        (0.0214, "s", "21.4 ms"),
        (2.5e-6, "s", "2.5 µs"),
        (3.21e-9, "J", "3.21 nJ"),
        (4e-12, "J", "4 pJ"),
        (5e-15, "J", "5e-15 J"),
        (1234, "W", "1.23 kW"),
        (2e6, "B", "2 MB"),
        (9.33e11, "B/s", "933 GB/s"),
        (82e12, "FLOP/s", "82 TFLOP/s"),
        (3e15, "FLOP/s", "3000 TFLOP/s"),
        (-0.5, "J", "-500 mJ"),
        # 999.5 and more is the next prefix, and never "1e+03".
        (999.4, "s", "999 s"),
        (999.6, "s", "1 ks"),
        (0.9996, "s", "1 s"),
        (0.9994, "s", "999 ms"),
        (0.9997e-3, "s", "1 ms"),
        # This holds beyond the last prefix as well.
        (1.0002e15, "FLOP/s", "1000 TFLOP/s"),
        (0.9994e15, "FLOP/s", "999 TFLOP/s"),
    ],
)
def test_three_digits_and_a_prefix(value, unit, text):
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("value", "factor", "unit"),
    [
        (0.002, 1e-3, "ms"),
        (0.001, 1e-3, "ms"),
        (0.0009, 1e-6, "µs"),
        (5.0, 1.0, "s"),
        (1500.0, 1e3, "ks"),
        (-0.002, 1e-3, "ms"),
        (0.0, 1.0, "s"),
        (1e-15, 1.0, "s"),
        (7e12, 1e12, "Ts"),
    ],
)
def test_a_unit_that_makes_a_value_at_least_one(value, factor, unit):
    assert scaled(value, "s") == (factor, unit)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (1.06e-5, "0.0000106"),
        (99490.4, "99,490"),
        (1234.5, "1,234"),
        (21.44, "21.4"),
        (3.0, "3"),
        (-0.05, "-0.05"),
    ],
)
def test_numbers_without_a_unit_are_written_in_full(value, text):
    assert number(value) == text
