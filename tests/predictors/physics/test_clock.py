"""The clock law and the power cap against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

import joulecast
from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics import power_cap
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import PRIOR_ENERGY, EnergyConstants
from joulecast.predictors.physics.power_cap import Jobs, loop_clocks_mhz, measured_work, throttled_mhz

RELU = Operation("relu", [(1000, 1000)])
LINEAR = Operation("linear", [(1024, 1024)], {"out_features": 1024, "bias": False})
CONSTANTS = EnergyConstants(1e-11, 2e-12, 5e-11, 1e-10, 0.5)
VOLTS = {500.0: 0.8, 1000.0: 0.8, 1500.0: 0.9, 2000.0: 1.0, 2500.0: 1.1}


def work(compute_s=0.0, memory_s=0.0, cache_s=0.0, switching_j=0.0, awake_j=0.0, memory_j=0.0, **more):
    """Operations at the boost clock, 2000 MHz, where the voltage is 1; what is given as one number holds for all."""
    given = (compute_s, memory_s, cache_s, switching_j, awake_j, memory_j)
    parts = np.array(np.broadcast_arrays(*map(np.atleast_1d, given)), dtype=float)
    return Work(ROUND, np.full(parts.shape[1], 2000.0), *parts, **more)


def by_hand(mhz):
    """Static watts and volts of the round GPU between 500 and 2000 MHz."""
    return 20 + 30 * (mhz - 500) / 1500, 0.8 + 0.2 * max(mhz - 1000, 0) / 1000


@pytest.mark.parametrize(
    ("clock", "milliseconds"),
    # (3 f)^3 + (5 f)^3 + 4^3 with f = 1, 2, 4: 216, 8 x 152 + 64, 64 x 152 + 64.
    [(2000.0, 6.0), (1000.0, 1280 ** (1 / 3)), (500.0, 9792 ** (1 / 3))],
)
def test_computing_and_caches_follow_the_clock_and_memory_does_not(clock, milliseconds):
    device_s, _ = work(compute_s=3e-3, memory_s=4e-3, cache_s=5e-3).at(clock)
    assert device_s == pytest.approx([1e-3 * milliseconds])


@pytest.mark.parametrize("clock", VOLTS)
@pytest.mark.parametrize("power", [2.0, 3.0])
def test_energy_of_the_chip_follows_a_power_of_the_voltage_and_that_of_memory_does_not(clock, power):
    for part in ("switching_j", "awake_j"):
        _, dynamic_j = work(compute_s=1e-3, voltage_power=power, **{part: 5.0}).at(clock)
        assert dynamic_j == pytest.approx([5.0 * VOLTS[clock] ** power])
    assert work(memory_s=1e-3, memory_j=7.0, voltage_power=power).at(clock)[1] == pytest.approx([7.0])


def test_two_powers_of_the_voltage_in_one_list():
    """An operation of a GPU's own predictor beside one of its fallback: 0.8^3 and 0.8^2 at 1000 MHz."""
    own, fallback = (work(compute_s=1e-3, switching_j=5.0, voltage_power=power) for power in (3.0, 2.0))
    missing = replace(own, switching_j=np.array([np.nan]))
    assert missing.merge(fallback).at(1000.0)[1] == pytest.approx([5.0 * 0.64])
    assert own.merge(fallback).at(1000.0)[1] == pytest.approx([5.0 * 0.512])
    together = own.take(np.array([0, 0])).with_others(fallback.take(np.array([0, 0])), np.array([False, True]))
    assert together.at(1000.0)[1] == pytest.approx([5.0 * 0.512, 5.0 * 0.64])


def test_a_gpus_own_predictor_uses_the_cube_and_others_the_square():
    for gpu, power in (("A30", 3.0), ("A100 PCIe 40GB", 2.0)):
        assert joulecast.predict_operations([RELU], gpu).work.voltage_power == pytest.approx(power)


def test_work_that_was_measured_at_a_lower_clock():
    """5 J at 1000 MHz and 0.8 of the voltage: 5 / 0.64 J at 2000 MHz, and in half of the time, if it can hold that."""
    slow = replace(work(compute_s=2e-3, switching_j=5.0), clock_mhz=np.array([1000.0]))
    assert slow.at(2000.0) == (pytest.approx([1e-3]), pytest.approx([5.0 / 0.64]))
    for clock in (1000.0, 2000.0):
        assert replace(slow, most_mhz=np.array([1000.0])).at(clock) == (pytest.approx([2e-3]), pytest.approx([5.0]))


def test_sms_that_are_awake_pay_for_clock_and_time():
    """Half the clock, 0.8 of the voltage: computing takes twice as long, so 0.64 in all; memory as long, so half.

    They are awake while load units take their cycles: two million at 2000 MHz are a millisecond beside one of caches.
    """
    assert work(compute_s=1e-3, awake_j=5.0).at(1000.0)[1] == pytest.approx([5.0 * 0.64])
    assert work(memory_s=1e-3, awake_j=5.0).at(1000.0)[1] == pytest.approx([5.0 * 0.64 / 2])
    found = work(cache_s=1e-3, awake_j=5.0)
    longer = found.loading(np.array([2e6]))
    assert longer.at(2000.0) == (pytest.approx([1e-3 * 2 ** (1 / 3)]), pytest.approx([5.0 * 2 ** (1 / 3)]))
    assert found.loading(np.array([0.0])).at(2000.0) == found.at(2000.0)


# The power cap. Computing alone, 0.3 J in a millisecond, draws 300 W at 2000 MHz: 0.15 W for each MHz and squared volt.
HUNGRY = work(compute_s=1e-3, switching_j=0.3)
CAPS = [
    (350.0, 2000.0),  # 300 W, and static 50 W
    (222.25, 1500.0),  # 225 W x 0.81 = 182.25 W, and 40 W
    (126.0, 1000.0),  # 150 W x 0.64 = 96 W, and 30 W
    (60.0, 500.0),  # No clock is low enough: 48 W and 20 W.
]


@pytest.mark.parametrize(("cap_w", "held_mhz"), CAPS)
def test_the_clock_falls_until_the_power_is_within_the_cap(cap_w, held_mhz):
    assert loop_clocks_mhz(HUNGRY, 2000.0, cap_w) == pytest.approx([held_mhz], abs=1.0)
    assert loop_clocks_mhz(HUNGRY, 700.0, cap_w) == pytest.approx([min(held_mhz, 700.0)], abs=1.0)
    # Beside it, an operation of 100 W holds its own clock: exactly that which is asked for, if it is within the cap.
    light = loop_clocks_mhz(work(compute_s=1e-3, switching_j=np.array([0.1, 0.3])), 2000.0, cap_w)
    assert light[1] == pytest.approx(held_mhz, abs=1.0)
    assert (light[0] == 2000.0) == (cap_w >= 150.0)
    # The cap holds for mean power: 0.3 J in 3 ms, in which the GPU waits for the host, are 100 W, and 50 W static.
    waiting = loop_clocks_mhz(HUNGRY, 2000.0, cap_w, host_s=3e-3)
    assert (waiting[0] == 2000.0) == (cap_w >= 150.0)


def test_under_the_cap_that_was_measured_nothing_is_searched_for():
    found = replace(HUNGRY, most_mhz=np.array([1200.0]), cap_w=200.0)
    assert loop_clocks_mhz(found, 2000.0, 200.0).tolist() == [1200.0]
    assert loop_clocks_mhz(found, 2000.0, 126.0) == pytest.approx([1000.0], abs=1.0)
    # Nor under the board's default cap, of 200 W, where others beside it were measured under none.
    among = replace(HUNGRY, most_mhz=np.array([1900.0]))
    assert loop_clocks_mhz(among, 2000.0, 200.0).tolist() == [1900.0]


# Work of operations, and of loops that were measured.


@pytest.mark.parametrize(("clock", "slower", "volts"), [(2000.0, 1.0, 1.0), (1500.0, 4 / 3, 0.9)])
def test_work_is_slower_than_physics_by_its_ratio(clock, slower, volts):
    """RELU moves 8 MB: at 0.91 of 100 GB/s, with 36 bytes per clock and SM on the way. Three times as long in all."""
    found = Work.of([RELU], ROUND, clock, np.array([3.0]), CONSTANTS)
    memory_s, cache_s, compute_s = 8e6 / 0.91e11, 8e6 / (36 * 10 * 2e9), 1e6 / 1e12
    least_s = (memory_s**3 + slower**3 * (cache_s**3 + compute_s**3)) ** (1 / 3)
    assert found.device_s == pytest.approx([3 * least_s])
    assert found.switching_j == pytest.approx([volts**2 * 1e6 * 1e-11])
    assert found.memory_j == pytest.approx([8e6 * 5e-11])
    assert found.awake_j == pytest.approx([volts**2 * 0.5 * 10 * clock / 1e3 * 3 * least_s])
    # What does nothing takes a nanosecond; what is missing costs no energy.
    nothing = Operation("dropout", [(1000, 1000)])
    assert Work.of([nothing], ROUND, clock, np.array([3.0]), CONSTANTS).device_s == pytest.approx([3e-9])
    missing = Work.of([RELU], ROUND, clock, np.array([0.0]), CONSTANTS)
    assert [missing.switching_j[0], missing.awake_j[0], missing.memory_j[0]] == [0.0, 0.0, 0.0]


COUNTED = replace(CONSTANTS, fp32_j_per_flop=1e-10)


@pytest.mark.parametrize(
    ("operation", "seconds", "constants", "computing_w", "memory_w", "cap_w"),
    [
        # 1 MFLOP and 8 MB in 1 ms draw 60.4 W at most.
        *((RELU, 1e-3, CONSTANTS, 0.01, 0.4, cap_w) for cap_w in (200.0, 60.5, 50.0)),
        # 2^31 FLOPs at 100 pJ and 3 x 4 MiB at 50 pJ in 2 ms: 107.4 W and 0.3 W.
        (LINEAR, 2e-3, COUNTED, 2**31 * 1e-10 / 2e-3, 3 * 2**22 * 5e-11 / 2e-3, 100.0),
    ],
)
def test_a_loop_at_its_cap_held_the_clock_at_which_physics_draws_that_much(
    operation, seconds, constants, computing_w, memory_w, cap_w
):
    """The measured time stays, and the power tells the clock. SMs that are awake: 0.5 W x 10 x 2 GHz = 10 W."""
    held = throttled_mhz([operation], ROUND, np.array([seconds]), constants, cap_w)[0]
    static_w, volts = by_hand(held)
    most_w = 50 + memory_w + computing_w + 10
    assert (held == 2000.0) == (cap_w > most_w)
    drawn_w = static_w + memory_w + volts**2 * (computing_w + 10 * held / 2000)
    assert drawn_w == pytest.approx(min(cap_w, most_w), abs=0.05)


def test_measured_work_keeps_what_was_measured_and_counts_as_throttled_near_the_cap():
    """From 0.97 of the cap on, the clock is the one at which physics draws the cap; below, it is the default clock."""
    hungry = replace(CONSTANTS, awake_w_per_sm_ghz=20.0)  # SMs draw 20 x 10 x 2 = 400 W at 2000 MHz.
    device_s, dynamic_j, power_w = np.full(2, 1e-3), np.array([0.05, 0.15]), np.array([193.0, 195.0])
    found = measured_work([RELU, RELU], ROUND, device_s, dynamic_j, power_w, hungry)
    below, held = found.clock_mhz
    static_w, volts = by_hand(held)
    assert below == 2000.0
    assert static_w + 0.4 + volts**2 * (0.01 + 400 * held / 2000) == pytest.approx(200.0, abs=0.1)
    for clock in (held, 2000.0):  # It holds no higher clock than the one that was measured.
        at_s, at_j = found.at(clock)
        assert (at_s[1], at_j[1]) == pytest.approx((1e-3, 0.15))
    assert (at_s[0], at_j[0]) == pytest.approx((1e-3, 0.05))
    assert (found.most_mhz.tolist(), found.cap_w) == ([2000.0, held], 200.0)


# Work that is scaled, moved and limited.


def test_work_that_is_scaled():
    found = work(3e-3, 4e-3, 5e-3, switching_j=1.0, awake_j=2.0, memory_j=5.0)
    half = found.scaled_to(np.array([3e-3]), np.array([4.0]))
    assert half.device_s == pytest.approx([3e-3])
    assert [each[0] for each in (half.switching_j, half.awake_j, half.memory_j)] == pytest.approx([0.5, 1.0, 2.5])
    assert half.at(2000.0)[1] == pytest.approx([4.0])
    more = found.scaled_by(2.0, 3.0)
    assert more.device_s == pytest.approx([12e-3])
    assert more.at(2000.0)[1] == pytest.approx([24.0])


def test_other_work_takes_the_places_that_are_named():
    first, second = work(compute_s=1e-3, switching_j=1.0), work(memory_s=2e-3, memory_j=3.0, cap_w=100.0)
    both = first.scatter(np.array([True, False])).merge(second.scatter(np.array([False, True])))
    assert both.device_s == pytest.approx([1e-3, 2e-3])
    assert both.at(1000.0) == (pytest.approx([2e-3, 2e-3]), pytest.approx([0.64, 3.0]))
    assert both.cap_w == np.inf
    for taken, seconds in ((True, 2e-3), (False, 1e-3)):
        assert first.with_others(second, np.array([taken])).device_s == pytest.approx([seconds])
    # The higher cap holds.
    capped = replace(first, cap_w=150.0)
    for one, other in ((capped, second), (second, capped)):
        assert one.with_others(other, np.array([True])).cap_w == 150.0


MOST_MHZ = np.array([1900.0, 1800.0, 1700.0])


def three(**more):
    """Operations of 1, 2 and 4 ms of computing with 1, 2 and 4 J in all, at the boost clock."""
    switching_j, awake_j, memory_j = np.array([(0.5, 1.0, 2.0), (0.3, 0.6, 0.2), (0.2, 0.4, 1.8)])
    seconds = np.array([1e-3, 2e-3, 4e-3])
    return work(seconds, switching_j=switching_j, awake_j=awake_j, memory_j=memory_j, **more)


@pytest.mark.parametrize(
    ("order", "place", "at_most", "factors"),
    [
        pytest.param([0, 1, 2], 1, False, [1, 2], id="an operation is raised to its limit"),
        pytest.param([2, 1, 0], 0, False, [1, 1], id="a limit below an operation changes nothing"),
        pytest.param([2, 1, 0], 0, True, [0.25, 1], id="an operation is lowered to its limit"),
        pytest.param([0, 1, 2], 1, True, [1, 1], id="a limit above an operation changes nothing"),
    ],
)
def test_the_last_operation_limits_the_time_and_energy_of_another(order, place, at_most, factors):
    """Its least time, which bounds it, changes by the same factor."""
    least_s = np.array([1e-4, 3e-4, 2e-4])
    given = three(most_mhz=MOST_MHZ, cap_w=120.0, least_compute_s=least_s).take(np.array(order))
    assert given.device_s == pytest.approx(np.array([1e-3, 2e-3, 4e-3])[order])
    assert given.most_mhz.tolist() == MOST_MHZ[order].tolist()
    found = given.limited(np.array([place]), at_most=at_most)
    for name in ("device_s", "switching_j", "awake_j", "memory_j"):
        assert getattr(found, name) == pytest.approx(getattr(given, name)[:2] * factors)
    assert found.bounds[0] == pytest.approx(given.bounds[0][:2] * factors)
    assert found.most_mhz.tolist() == given.most_mhz[:2].tolist()
    assert (found.clock_mhz.tolist(), found.cap_w) == ([2000.0, 2000.0], 120.0)


# Several jobs at once, against the same law on each of them.


GPUS = [find_gpu(name) for name in ("A30", "T4", "H100 SXM", "MI300X")]
OPERATIONS = [
    Operation("linear", [(512, 1024)], {"out_features": 2048}),
    Operation("relu", [(64, 1024)]),
    Operation("conv2d", [(8, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3, "padding": 1}),
]
COUNTS = np.array([3.0, 7.0, 2.0])
CLOCKS = np.array([[900.0, 1200.0, 1410.0]] * len(GPUS))


def jobs(each, counts=COUNTS, cap_w=1e9):
    return Jobs.of(each, [counts] * len(each), [(0.0, 1.0, cap_w)] * len(each))


def works():
    of_each = [
        Work.of(OPERATIONS, gpu, float(gpu.boost_clock_mhz), np.array([1.5, 2, 3]), PRIOR_ENERGY) for gpu in GPUS
    ]
    return [work.bounded(OPERATIONS) for work in of_each]


def test_sums_leave_out_what_is_not_known():
    """The second operation is not covered on the T4, so only the others count there."""
    first, second, *others = works()
    partly = second.take(np.array([0, 2])).scatter(np.array([True, False, True]))
    device_s, dynamic_j = jobs([first, partly, *others]).sums_at(CLOCKS)
    each_s, each_j = jobs(works()).at(CLOCKS)
    assert device_s[1] == pytest.approx(3 * each_s[1, :, 0] + 2 * each_s[1, :, 2])
    assert dynamic_j[1] == pytest.approx(3 * each_j[1, :, 0] + 2 * each_j[1, :, 2])
    assert device_s[0] == pytest.approx(3 * each_s[0, :, 0] + 7 * each_s[0, :, 1] + 2 * each_s[0, :, 2])


def test_many_clocks_are_summed_in_pieces(monkeypatch):
    whole = jobs(works()).sums_at(CLOCKS)
    monkeypatch.setattr(power_cap, "_MOST_VALUES", 20)  # of 4 jobs, 3 operations and 3 clocks
    for found, expected in zip(jobs(works()).sums_at(CLOCKS), whole, strict=True):
        assert found.tolist() == expected.tolist()


def test_the_mean_clock_is_weighted_by_device_time():
    """One operation of 1 ms at 2000 MHz, and three of 2 ms that hold 1000 MHz: 8 / 7 of 1000 MHz."""
    found = work(compute_s=np.array([1e-3, 1e-3]), most_mhz=np.array([np.inf, 1000.0]), cap_w=200.0)
    both, clocks = jobs([found], np.array([1.0, 3.0])), np.array([[2000.0, 800.0]])
    device_s, _ = both.sums_at(clocks)
    assert device_s == pytest.approx(np.array([[7e-3, 10e-3]]))
    assert both.mean_mhz(clocks, device_s) == pytest.approx(np.array([[(2000 + 6 * 1000) / 7, 800.0]]))


@pytest.mark.parametrize("caps_w", [(60.0,) * 4, (1e9, 60.0, 1e9, 500.0)], ids=["all at their caps", "two of them"])
def test_jobs_of_several_lengths_and_gpus_are_as_alone(caps_w):
    counts = [COUNTS, np.array([2.0, 5.0]), COUNTS, COUNTS]
    each = [work.take(np.arange(len(some))) for work, some in zip(works(), counts, strict=True)]
    facts = [(0.0, 1.0, cap_w) for cap_w in caps_w]
    together = Jobs.of(each, counts, facts).settled(CLOCKS)
    for place, one in enumerate(zip(each, counts, facts, strict=True)):
        alone = Jobs.of(*([part] for part in one)).settled(CLOCKS[:1])
        for values, expected in zip(together, alone, strict=True):
            assert values[place] == pytest.approx(expected[0], rel=1e-12)


def test_the_held_clock_is_the_same_for_few_jobs_and_for_many():
    """Few jobs try many clocks at once, and many jobs one after the other: both find the same step of the grid."""
    (work, *_) = works()
    alone = Jobs.of([work], [COUNTS], [(0.0, 1.0, 80.0)]).settled(CLOCKS[:1])[0]
    assert (alone < CLOCKS[:1]).sum() > 0
    many = 5_000
    places, facts = np.tile(np.arange(3), (many, 1)), np.array([[0.0], [1.0], [80.0]]) * np.ones(many)
    jobs = Jobs.sharing(work, places, np.tile(COUNTS, (many, 1)), facts)
    held = jobs.settled(np.tile(CLOCKS[:1], (many, 1)))[0]
    assert held == pytest.approx(np.tile(alone, (many, 1)), rel=1e-12)
