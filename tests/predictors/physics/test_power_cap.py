"""The power cap and the clock law over several jobs, against the same law on each of them."""

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics import power_cap
from joulecast.predictors.physics.bounds import Bounds
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import PRIOR_ENERGY
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.power_cap import Jobs

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
    zero = np.zeros(2)
    parts = LeastTimes(np.array([1e-3, 1e-3]), zero, zero)
    work = Work(ROUND, np.full(2, 2000.0), parts, zero, zero, zero, np.array([np.inf, 1000.0]), 200.0, Bounds(0.0, 0.0))
    both, clocks = jobs([work], np.array([1.0, 3.0])), np.array([[2000.0, 800.0]])
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
