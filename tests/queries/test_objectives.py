"""Objectives by arithmetic, constraints, ties, one clear error per mistake; and choices against brute force."""

from pathlib import Path

import pytest

import joulecast
from joulecast.errors import InputError, UnknownNameError
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.prepared import over_clocks
from joulecast.queries.evaluation import clock_grid_mhz
from joulecast.queries.objectives import carbon_intensity, grids
from joulecast.zoo import find_predictor

JOB = ("resnet18", (32, 3, 224, 224))
TWO = {"gpus": ["A30", "T4"], "clocks": (600, 900, 1200)}


def best(**options):
    return joulecast.best(*JOB, **{**TWO, **options})


def test_cost_is_hours_and_kilowatt_hours():
    for choice in best(objective="cost", price_per_hour={"A30": 3.6, "T4": 0.36}, price_per_kwh=0.5):
        hourly = {"A30": 3.6, "T4": 0.36}[choice.alias]
        assert choice.cost == pytest.approx(hourly * choice.time_s / 3600 + 0.5 * choice.energy_j / 3.6e6)
        assert choice.value == choice.cost
    # GPUs without a price are left out.
    sweep = joulecast.sweep(*JOB, **TWO, objective="cost", price_per_hour={"A30": 1.0})
    assert {row.alias for row in sweep} == {"A30"}
    assert [(out.gpu, out.reason) for out in sweep.left_out] == [("T4", "has no price per hour")]


def test_carbon_is_energy_times_intensity():
    by_country, by_number = best(objective="carbon", carbon="fr"), best(objective="carbon", carbon=56)
    assert by_country[0].carbon_g == by_number[0].carbon_g == pytest.approx(by_number[0].energy_j / 3.6e6 * 56)
    assert carbon_intensity("germany") == carbon_intensity("DE") == carbon_intensity("381")
    assert all(
        0 < grid.carbon_g_per_kwh < 1200 and grid.year in (2023, 2024) and grid.source for grid in grids().values()
    )


def test_per_sample_compares_batch_sizes():
    choices = best(objective="energy_per_sample", batch_sizes=[1, 8, 64], gpus="A30")
    assert {choice.batch_size for choice in choices} == {1, 8, 64}
    for choice in choices:
        assert choice.value == choice.energy_per_sample_j == pytest.approx(choice.energy_j / choice.batch_size)
    assert choices[0].batch_size > 1
    # For every objective, batch sizes are compared by the cost of a sample.
    for choice in best(objective="edp", batch_sizes=[1, 64], gpus="A30"):
        assert choice.value == pytest.approx(choice.time_per_sample_s * choice.energy_per_sample_j)
    energy = best(batch_sizes=[1, 8, 64], gpus="A30")
    assert [choice.value for choice in energy] == [choice.value for choice in choices]
    assert joulecast.sweep(*JOB, gpus="A30", clocks=(900,), batch_sizes=[1, 64]).best("time").batch_size == 64


def test_constraints_hold():
    free = best(objective="energy")
    deadline = 0.9 * free[0].time_s
    quick = best(max_time_s=deadline)
    assert all(choice.time_s <= deadline for choice in quick)
    rows = joulecast.sweep(*JOB, **TWO).rows
    assert quick[0].energy_j == min(row.energy_j for row in rows if row.time_s <= deadline)
    budget_w = sorted(row.power_w for row in rows)[len(rows) // 2]
    thrifty = best(objective="time", max_power_w=budget_w)
    assert all(choice.power_w <= budget_w for choice in thrifty)
    assert thrifty[0].time_s == min(row.time_s for row in rows if row.power_w <= budget_w)
    quick, late = best(objective="time")
    left = best(objective="time", max_time_s=(quick.time_s * late.time_s) ** 0.5).left_out
    assert [(out.gpu, out.reason) for out in left] == [(late.alias, "misses the deadline at every clock")]
    thriftiest = min(rows, key=lambda row: row.power_w)
    with pytest.raises(InputError, match="deadline and the power budget together"):
        best(max_time_s=1.01 * quick.time_s, max_power_w=1.01 * thriftiest.power_w)


@pytest.mark.parametrize("gpus", [["H100 SXM", "H100 NVL", "T4", "H200"], ["A30", "A10", "L4", "T4"]])
def test_ties_lie_within_the_interval_of_the_best_or_else_of_the_others(gpus):
    first, *others = joulecast.best("resnet50", (32, 3, 224, 224), gpus=gpus)
    assert not first.tied
    for choice in others:
        if first.interval is not None:
            assert choice.tied == (choice.value <= first.interval.energy_j[1])
        elif choice.interval is not None:
            assert choice.tied == (choice.interval.energy_j[0] <= first.value)
    assert not any(row.tied for row in joulecast.sweep(*JOB, gpus=gpus[0], clocks=(900, 1200)))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"clocks": (900, 1500)}, InputError, "A30 cannot hold this graphics clock(.|\n)*210 to 1440"),
        ({"gpus": "T4", "precision": "bf16"}, InputError, "T4 does not support bf16"),
        ({"gpus": ["T4", "P4"], "precision": "bf16"}, InputError, "no GPU can run this job(.|\n)*bf16"),
        ({"gpus": None, "clocks": 9000}, InputError, "no GPU can run this job(.|\n)*holds"),
        ({"power_limit_w": 5}, InputError, "no GPU can run this job(.|\n)*cannot be capped at this value"),
        ({"gpus": []}, InputError, "nothing to choose from"),
        ({"clocks": []}, InputError, "nothing to choose from"),
        ({"clocks": (-900,)}, InputError, "clocks is out of range(.|\n)*above 0"),
        ({"precision": []}, InputError, "nothing to choose from"),
        ({"precision": ["fp16", "fp17"]}, UnknownNameError, "did you mean fp16"),
        ({"batch_sizes": [0]}, InputError, "batch_sizes is out of range(.|\n)*1 or more, an integer"),
        ({"objective": "enrgy"}, UnknownNameError, "did you mean energy"),
        ({"objective": "cost"}, InputError, "needs prices"),
        ({"objective": "carbon"}, InputError, "intensity of the grid"),
        ({"price_per_hour": -1}, InputError, "out of range(.|\n)*-1(.|\n)*0 or more"),
        ({"price_per_hour": {"A30": -0.5}}, InputError, "out of range(.|\n)*0 or more"),
        ({"price_per_kwh": float("nan")}, InputError, "out of range(.|\n)*0 or more"),
        ({"carbon": -5}, InputError, "out of range(.|\n)*0 or more"),
        ({"carbon": "Atlantis"}, UnknownNameError, "country"),
        ({"max_time_s": 0}, InputError, "max_time_s is out of range"),
        ({"max_time_s": 1e-9}, InputError, "(?s)no choice satisfies the deadline.*at least a deadline.*nearest: "),
        ({"max_power_w": 1}, InputError, "(?s)the power budget.*nearest: T4 \\(default, batch 32\\) at 600 MHz"),
    ],
)
def test_bad_input(options, error, says):
    with pytest.raises(error, match=says):
        best(**options)


def test_gpus_from_files_stand_beside_those_of_the_catalogue(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    choices = best(gpus=[str(tmp_path / "mine.toml"), "T4"], objective="cost", price_per_hour=1.0)
    assert {choice.alias for choice in choices} == {"RTX A5000", "T4"}
    assert not next(choice for choice in choices if choice.alias == "RTX A5000").measured


def test_a_job_that_fits_in_no_memory():
    with pytest.raises(InputError, match=r"fits into the memory of no GPU(.|\n)* TB(.|\n)*smaller batch"):
        joulecast.best("resnet18", (500_000, 3, 224, 224), mode="training", gpus=["T4", "B300"])


def test_lists_of_operations_have_no_samples():
    operation = joulecast.Operation("relu", [(32, 64, 56, 56)])
    assert joulecast.best([(operation, 3)], gpus="A30", clocks=900)[0].energy_per_sample_j is None
    with pytest.raises(InputError, match="needs a batch size"):
        joulecast.best([(operation, 3)], objective="energy_per_sample", gpus="A30")
    with pytest.raises(InputError, match="other batch sizes need a model"):
        joulecast.best([(operation, 3)], batch_sizes=[1, 2], gpus="A30")


# The best choice and the sweep against brute force: `predict` at every clock.


QUICK = ("resnet18", (8, 3, 64, 64))
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
    predictions = [joulecast.predict(*QUICK, gpu, clock) for gpu in GPUS for clock in clocks]
    least = min(predictions, key=value)
    choices = joulecast.best(*QUICK, objective=objective, gpus=GPUS, clocks=clocks)
    assert (choices[0].gpu, choices[0].clock_mhz) == (least.gpu, least.clock_mhz)
    assert choices[0].value == pytest.approx(value(least), rel=1e-6)
    assert [choice.value for choice in choices] == sorted(choice.value for choice in choices)
    assert len(choices) == len(GPUS)


def test_no_row_beats_one_of_the_pareto_front():
    sweep = joulecast.sweep(*QUICK, gpus=GPUS, clocks=(510, 900, 1200, 1410))
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


def test_what_is_not_covered_is_in_no_total():
    small = joulecast.Operation("all_reduce", [(32, 64)], {"gpus": 2})
    network = joulecast.Network.of([(joulecast.Operation("relu", [(32, 64, 56, 56)]), 5), (small, 2)])
    predictor = find_predictor("A30", "inference")
    together = over_clocks(predictor.prepared(network), [600.0, 1440.0])
    assert together.prepared.missing == 1
    for place, clock in enumerate((600.0, 1440.0)):
        assert together.energy_j[place] == pytest.approx(predictor.predict(network, clock).energy_j)
    nothing = over_clocks(predictor.prepared(joulecast.Network.of([(small, 2)])), [600.0])
    assert nothing.prepared.missing == 1
    assert nothing.time_s.tolist() != nothing.time_s.tolist()  # NaN
