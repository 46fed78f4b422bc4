"""Shares: sums of seconds and joules that say what is not known."""

import pytest

from joulecast.energy import Figure, Share
from joulecast.errors import InputError


def test_a_sum_has_the_weakest_source_and_counts_what_is_unknown():
    total = Figure.total([Figure.of(1.5, "measured"), Figure.of(2.0, "modelled"), Figure.of(None, "measured")])
    assert total == Figure(3.5, "modelled", unknown=1)
    assert Figure.total([Figure.of(None, "modelled")] * 2) == Figure(0.0, "missing", unknown=2)


def test_missing_is_never_zero():
    assert Figure.of(0.0, "measured").source == "measured"
    assert Figure.of(None, "measured") == Figure(0.0, "missing", unknown=1)
    with pytest.raises(InputError, match="a missing figure"):
        Figure(0.0, "missing")


def test_sums_are_rounded_once():
    # 1 + 1e-16 rounds back to 1, ten thousand times over; together they are 1e-12.
    small = [Figure.of(1e-16, "measured")] * 10_000
    assert Figure.total([Figure.of(1.0, "measured"), *small]).value == 1.000000000001


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_quantities_are_refused(value):
    with pytest.raises(InputError, match="out of range"):
        Figure.of(value, "measured")


def test_devices_work_side_by_side_and_their_joules_add_up():
    gpu = Share({"gpu": Figure.of(2.0, "measured")}, {("gpu", "static"): Figure.of(60.0, "measured")})
    cpu = Share({"cpu": Figure.of(3.0, "measured")}, {("cpu", "package"): Figure.of(40.0, "modelled")})
    both = Share.total([gpu, cpu, gpu])
    assert (both.time_s, both.energy_j, both.source) == (4.0, 160.0, "modelled")  # the GPU: 2 s + 2 s
    assert both.on("gpu").energy_j == 120.0
    assert both.devices == ("gpu", "cpu")
    assert both.by_component() == {"static": Figure(120.0, "measured"), "package": Figure(40.0, "modelled")}


def test_half_of_a_share_knows_no_more_than_the_whole():
    part = ("gpu", "total")
    for figure, half in ((Figure(4.0, "measured", unknown=2), 2.0), (Figure.of(None, "measured"), 0.0)):
        scaled = Share({"gpu": figure}, {part: figure}).scaled_by(0.5)
        assert scaled.energy[part] == scaled.time["gpu"] == Figure(half, figure.source, figure.unknown)
        assert scaled.unknown == figure.unknown > 0


def test_json_keeps_everything():
    share = Share(
        {"gpu": Figure.of(0.1, "modelled")},
        {("gpu", "static"): Figure.of(None, "modelled"), ("gpu", "dynamic"): Figure(0.3, "measured", unknown=2)},
    )
    assert Share.from_dict(share.to_dict()) == share
