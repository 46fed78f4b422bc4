"""Power of kernels: how far the cap lowers the clock, by hand, and what is learned from simulated readings."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast.hardware import IdleCurve, VoltageCurve, find_gpu
from joulecast.predictors.model.fit_power import demand_w
from joulecast.predictors.model.power import PowerDemand, demand_at_cap_w, demand_of_same_die_w, within_range_w

# 100 W static; the voltage is 0.8 of that at 2000 MHz up to 1000 MHz, and rises in a straight line from there.
GPU = replace(
    find_gpu("H200"),
    boost_clock_mhz=2000,
    max_clock_mhz=2000,
    base_clock_mhz=None,
    power_limit_w=700.0,
    power_range_w=None,
    idle_curve=IdleCurve((2000.0,), (100.0,)),
    voltage=VoltageCurve(flat_mv=800.0, knee_mhz=1000.0, top_mhz=2000.0, top_mv=1000.0, bend=1.0),
)


def test_what_the_cap_slows_down_would_draw_more_at_the_default_clock():
    # Held at 1600 MHz: 0.92 of the voltage. 600 W of it are dynamic there: 600 x 1.25 / 0.92^2 at 2000 MHz.
    static_w = demand_at_cap_w(GPU, np.array([1.0]))[0] - 600
    assert static_w == pytest.approx(100, rel=0.01)
    (found,) = demand_at_cap_w(GPU, np.array([1.25]))
    assert 100 + 600 * 1.25 / 0.92**2 <= found <= 100 + 640 * 1.25 / 0.92**2  # It falls, by less than 40 W.


def test_readings_are_the_demand_and_at_the_cap_it_is_more_where_they_took_longer():
    assert demand_w(GPU, np.array([300.0, 500.0]), np.array([1.0, 1.1])).tolist() == [300, 500]
    burst, sustained = demand_w(GPU, np.array([690.0, 690.0]), np.array([1.0, 1.15]))
    assert burst == pytest.approx(700, rel=0.01)
    assert sustained > 1.2 * burst


def test_an_engine_that_is_slower_below_the_cap_too_is_not_taken_for_throttled():
    power_w, over_burst = np.array([400.0, 410.0, 420.0, 690.0]), np.array([1.3, 1.3, 1.3, 1.3])
    assert demand_w(GPU, power_w, over_burst)[-1] == pytest.approx(700, rel=0.01)


def test_demand_stays_above_static_power_and_below_twice_the_cap():
    low, middle, high = within_range_w(np.exp([-9.0, np.log(0.5), 9.0]), GPU)
    assert 100 < low < 110
    assert middle == pytest.approx(350)
    assert high == 1400


def test_generations_before_hopper_are_left_to_the_energies_of_networks():
    demand = PowerDemand(trees={("all", "product"): lambda rows: rows[:, 0]})
    assert not PowerDemand().covers(find_gpu("B200"))
    assert demand.covers(find_gpu("B200"))
    assert not demand.covers(find_gpu("A100 SXM4 80GB"))


def drawing(watts):
    return {"idle_curve": IdleCurve((2000.0,), (watts,))}


@pytest.mark.parametrize(
    ("own", "other", "over_least", "found_w"),
    [
        # 500 - 100 W for 10 us are 4 mJ. In 20 us, that is 200 W, beside 100 W static.
        pytest.param({"memory_bandwidth": GPU.memory_bandwidth / 2}, {}, 0.5, 300, id="with less bandwidth"),
        # 500 W less 100 W are dynamic, whichever of the boards draws 100 W; static power is the board's own.
        pytest.param(drawing(80.0), drawing(100.0), 1.0, 480, id="the larger static power is that of the die"),
        pytest.param(drawing(100.0), drawing(80.0), 1.0, 500, id="also where it is the board's own"),
        # A voltage of 0.9: 400 W x 0.9^2 in the same time.
        pytest.param({"boost_clock_mhz": 1500}, {}, 1.0, 100 + 324, id="with a lower default clock"),
    ],
)
def test_boards_with_the_same_die_have_the_joules_in_common_and_not_the_watts(own, other, over_least, found_w):
    boards = replace(GPU, name="own", **own), replace(GPU, name="other", **other)
    assert demand_of_same_die_w(*boards, np.array([500.0]), np.array([over_least])) == pytest.approx([found_w])


def test_an_unmeasured_board_is_predicted_from_a_measured_one_with_its_die():
    demand = PowerDemand(
        measured={"linear, half": frozenset({"NVIDIA H200"}), "linear, fp8": frozenset({"NVIDIA B200"})}
    )
    pairs = {"H100 SXM": "H200", "GB200": "B200", "B200": "B200", "RTX 5090": "RTX 5090"}
    assert {name: demand.measured_like(find_gpu(name)) for name in pairs} == {a: find_gpu(b) for a, b in pairs.items()}
