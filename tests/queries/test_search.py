"""The best choice and the sweep against brute force: `predict` at every clock."""

import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.prepared import over_clocks
from joulecast.queries.evaluation import clock_grid_mhz
from joulecast.zoo import find_predictor

JOB = ("resnet18", (8, 3, 64, 64))
GPUS = ("A30", "T4", "H100 SXM")
VALUES = {
    "energy": lambda p: p.energy_j,
    "time": lambda p: p.time_s,
    "edp": lambda p: p.edp_js,
    "ed2p": lambda p: p.energy_j * p.time_s**2,
    "energy_per_sample": lambda p: p.energy_j / 8,
}


@pytest.mark.parametrize("objective", VALUES)
def test_best_is_the_least_of_all_predictions(objective):
    value, clocks = VALUES[objective], (510, 900, 1200, 1410)
    predictions = [joulecast.predict(*JOB, gpu, clock) for gpu in GPUS for clock in clocks]
    least = min(predictions, key=value)
    choices = joulecast.best(*JOB, objective=objective, gpus=GPUS, clocks=clocks)
    assert (choices[0].gpu, choices[0].clock_mhz) == (least.gpu, least.clock_mhz)
    assert choices[0].value == pytest.approx(value(least), rel=1e-6)
    assert [choice.value for choice in choices] == sorted(choice.value for choice in choices)
    assert len(choices) == len(GPUS)


def test_no_row_beats_one_of_the_pareto_front():
    sweep = joulecast.sweep(*JOB, gpus=GPUS, clocks=(510, 900, 1200, 1410))
    front = sweep.pareto()
    for row in sweep:
        beaten = any(f.time_s <= row.time_s and f.energy_j <= row.energy_j and f is not row for f in front)
        assert beaten != (row in front)


@pytest.mark.parametrize("name", ["A30", "P4", "RTX 5090", "MI300X"])
def test_the_grid_has_the_lowest_highest_and_default_clock(name):
    gpu = find_gpu(name)
    grid = clock_grid_mhz(gpu)
    assert len(grid) <= 40
    assert grid.tolist() == sorted(set(grid.tolist()))
    assert {float(gpu.boost_clock_mhz), float(gpu.max_clock_mhz)} <= set(grid.tolist())
    assert gpu.min_clock_mhz <= grid[0] < gpu.min_clock_mhz + 15


@pytest.mark.parametrize(
    ("gpu", "mode", "cap_w"),
    [
        ("A30", "inference", None),
        ("A30", "training", 120),
        ("T4", "inference", None),
        ("H100 SXM", "inference", 400),
        ("2080 Ti", "training", 150),
    ],
)
def test_many_clocks_at_once_are_single_predictions(gpu, mode, cap_w):
    network = joulecast.extract("resnet50", (32, 3, 224, 224), mode=mode)
    predictor = find_predictor(gpu, mode)
    clocks = clock_grid_mhz(find_gpu(gpu))[::6]
    together = over_clocks(predictor.prepared(network, cap_w), clocks)
    for place, clock in enumerate(clocks):
        one = predictor.predict(network, float(clock), cap_w)
        assert together.time_s[place] == pytest.approx(one.time_s, rel=1e-9)
        assert together.energy_j[place] == pytest.approx(one.energy_j, rel=1e-9)
        assert together.held_clocks_mhz[place] == pytest.approx(one.held_clock_mhz, rel=1e-9)
        interval, notes = together.at(place).caveats(0.9)
        assert (notes, interval is not None) == (one.notes, one.supports(0.9))
        if interval is not None:
            assert interval.energy_j == pytest.approx(one.interval(0.9).energy_j, rel=1e-9)


def test_what_is_not_covered_is_in_no_total():
    small = joulecast.Operation("all_reduce", [(32, 64)], {"gpus": 2})
    network = joulecast.Network.of([(joulecast.Operation("relu", [(32, 64, 56, 56)]), 5), (small, 2)])
    predictor = find_predictor("A30", "inference")
    together = over_clocks(predictor.prepared(network), [600.0, 1440.0])
    assert together.missing == 1
    for place, clock in enumerate((600.0, 1440.0)):
        assert together.energy_j[place] == pytest.approx(predictor.predict(network, clock).energy_j)
    nothing = over_clocks(predictor.prepared(joulecast.Network.of([(small, 2)])), [600.0])
    assert nothing.missing == 1
    assert nothing.time_s.tolist() != nothing.time_s.tolist()  # NaN
