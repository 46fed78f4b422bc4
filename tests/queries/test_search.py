"""The best choice and the sweep against brute force: `predict` at every clock."""

from __future__ import annotations

import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.queries.clocks import clock_grid_mhz

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


def test_the_front_is_a_front():
    sweep = joulecast.sweep(*JOB, gpus=GPUS, clocks=(510, 900, 1200, 1410))
    front = sweep.pareto()
    for row in sweep:
        beaten = any(f.time_s <= row.time_s and f.energy_j <= row.energy_j and f is not row for f in front)
        assert beaten != (row in front)


@pytest.mark.parametrize("name", ["A30", "P4", "RTX 5090", "MI300X"])
def test_the_grid_holds_ends_and_default(name):
    gpu = find_gpu(name)
    grid = clock_grid_mhz(gpu)
    assert len(grid) <= 40
    assert grid.tolist() == sorted(set(grid.tolist()))
    assert {float(gpu.boost_clock_mhz), float(gpu.max_clock_mhz)} <= set(grid.tolist())
    assert gpu.min_clock_mhz <= grid[0] < gpu.min_clock_mhz + 15
