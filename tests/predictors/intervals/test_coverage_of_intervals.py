"""Intervals cover the promised share, are wider where less is known, and are the same after storage."""

import json
from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_operations

from joulecast import Network, Operation
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.operations.kinds import KINDS
from joulecast.predictors.evaluation.calibrating import (
    Parts,
    calibrate,
    chance_range,
    fit_networks,
    network_coverage,
    operation_coverage,
    with_variances,
)
from joulecast.predictors.evaluation.errors import Errors
from joulecast.predictors.evaluation.left_out import errors_on_repeats
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.intervals.calibration import COORDINATES, Calibration, Cases, Closeness
from joulecast.predictors.intervals.conformal import (
    MEASURED_KINDS,
    conformal_error,
    conformal_rank,
    never_measured,
    thinned,
)
from joulecast.predictors.intervals.network_calibration import NetworkCalibration
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.recipes import ForestRecipe

A30 = find_gpu("A30")
CASES = 4000


def _errors(split, operations, time, power, distances) -> Errors:
    """Loops of a second and 100 W, bound by the GPU, with these factors of time and power in their predictions."""
    ones = np.ones(len(operations))
    columns = {"host_bound": ones < 1, "reference": ones > 0, "distance": distances}
    known = {"time": ones, "power": 100 * ones}, {"time": time, "power": 100 * power}
    return Errors.of_operations(split, "", operations, *known, **columns)


def _drawn(split: str, sigma_near: float = 0.02, sigma_far: float = 0.2, seed: int = 0) -> Errors:
    """Errors that grow with distance, on operations of two families."""
    rng = np.random.default_rng(seed)
    relus = [Operation("relu", [(n, 8)]) for n in range(1, CASES // 2 + 1)]
    linears = [Operation("linear", [(n, 8)], {"out_features": 8}) for n in range(1, CASES // 2 + 1)]
    distances = rng.uniform(0, 8, CASES)
    sigma = np.where(distances < 4, sigma_near, sigma_far) * np.repeat([1, 3], CASES // 2)
    time, power = (np.exp(sigma * rng.standard_normal(CASES) / part) for part in (1, 2))
    return _errors(split, relus + linears, time, power, distances)


@pytest.fixture(scope="module")
def calibration():
    return calibrate(Closeness.of(simulated_operations()), _drawn("folds"))


def test_distances():
    """Where nothing at all is remembered, nothing is far."""
    assert Closeness({}).distances([Operation("gelu", [(4,)])]).tolist() == [0.0]
    known = [Operation("relu", [(32, 64, n, n)]) for n in (8, 16, 32)]
    closeness = Closeness.of(known)
    assert set(closeness.rows) == {"relu"}
    assert closeness.rows["relu"].shape == (3, len(COORDINATES))
    near, far = closeness.distances([known[1], Operation("relu", [(32, 64, 512, 512)])])
    assert 0 < near < far
    assert closeness.distances([Operation("gelu", [(4,)])]).tolist() == [np.inf]
    assert closeness.distances([]).shape == (0,)
    # A network of one measured operation, called many times, has a distance of zero.
    assert Closeness.of(known[:1]).distances(known[:1]) == pytest.approx([0.0], abs=1e-3)
    again = Closeness.from_dict(json.loads(json.dumps(closeness.to_dict())))
    assert again.distances(known) == pytest.approx(closeness.distances(known), abs=0.01)
    other = [operation.replace(precision="bf16") for operation in known]
    assert (closeness.distances(other) > closeness.distances(known)).all()


def test_ranks_by_hand():
    assert [conformal_rank(0.9, n) for n in (8, 9, 19, 99)] == [9, 9, 18, 90]
    errors = [0.1 * i for i in range(1, 10)]
    assert conformal_error(errors, 0.9, "errors") == pytest.approx(0.9)
    with pytest.raises(InputError, match="9 errors cannot support") as caught:
        conformal_error(errors, 0.95, "errors")
    assert (caught.value.given, caught.value.allowed) == (0.95, "up to 0.900")
    with pytest.raises(InputError, match="the level of an interval lies between 0 and 1") as caught:
        conformal_rank(1.0, 9)
    assert (caught.value.given, caught.value.allowed) == (1.0, "such as 0.9")


@pytest.mark.parametrize("count", [99, 100, 750, 12345])
def test_thinning_keeps_what_each_level_covers(count):
    errors = np.sort(np.random.default_rng(0).exponential(size=count))
    few = thinned(errors, 99)
    assert len(few) == 99
    for level in (0.1, 0.5, 0.9, 0.99):
        assert conformal_error(few, level, "") == conformal_error(errors, level, "")


def test_intervals_cover_what_they_promise():
    rows = operation_coverage(Errors.joined([_drawn("folds"), _drawn("names", seed=1)]), 0.9, seed=0)
    everything = {(row.split, row.group): row for row in rows}
    assert everything["folds", "all"].cases == CASES
    for row in everything.values():
        assert row.within == pytest.approx(dict.fromkeys(("time", "power", "energy"), 0.9), abs=0.025), row
    matmul, elementwise = (everything["folds", f"family {family}"] for family in ("matmul", "elementwise"))
    assert matmul.width["time"] > 2 * elementwise.width["time"]


def test_powers_near_the_cap_have_narrow_intervals():
    rng, part, at_cap = np.random.default_rng(0), _drawn("folds"), np.arange(CASES) % 2 == 0
    predicted = np.where(at_cap, 164.0, 100.0)
    measured = predicted * np.exp(np.where(at_cap, 0.002, 0.1) * rng.standard_normal(CASES))
    part = replace(
        part, measured={**part.measured, "power": measured}, predicted={**part.predicted, "power": predicted}
    )
    (everything, *_) = operation_coverage(part, 0.9, seed=0)
    assert everything.within["power"] == pytest.approx(0.9, abs=0.02)
    calibration = calibrate(Closeness({}), part)
    relu, no = [part.of[0]] * 2, np.zeros(2, dtype=bool)
    near, far = calibration.log_errors("power", 0.9, Cases(relu, no, no, np.full(2, 2.0)), np.array([164.0, 100.0]))
    assert near == pytest.approx(1.645 * 0.002, rel=0.25)
    assert far == pytest.approx(1.645 * 0.1, rel=0.25)


def test_repeats_of_an_operation_are_one_case():
    # The first hundred operations are off by a half, and were measured nine times each; the others are off by a tenth.
    operations = [Operation("relu", [(n, 8)]) for n in range(1, 1001)]
    repeated = tuple(o for i, o in enumerate(operations) for _ in range(9 if i < 100 else 1))
    off = np.array([0.5 if i < 100 else 0.1 for i in range(1000) for _ in range(9 if i < 100 else 1)])
    part = _errors("folds", repeated, np.exp(off), np.exp(off), np.ones(len(off)))
    errors = calibrate(Closeness({}), part).groups["elementwise GPU"][0].errors["time"]
    assert np.mean(errors > 0.3) == pytest.approx(0.1, abs=0.011)
    assert np.mean(off > 0.3) == 0.5


def test_loops_that_wait_for_the_host_have_errors_of_their_own():
    operations, waits = [Operation("relu", [(n, 8)]) for n in range(1, 201)], np.arange(200) < 100
    off = np.exp(np.where(waits, 0.5, 0.1))
    part = _errors("folds", operations, off, off, np.ones(200)).having({"host_bound": waits})
    groups = calibrate(Closeness({}), part).groups
    for family in ("", "elementwise "):
        for bound, error in (("host", 0.5), ("GPU", 0.1)):
            assert groups[family + bound][0].errors["time"] == pytest.approx(error)


def test_what_stands_in_errs_as_it_does_in_its_family():
    part = _drawn("kinds").having({"distance": np.full(CASES, np.inf)})
    calibration = calibrate(Closeness({}), part)
    relu, linear = Operation("relu", [(4, 8)]), Operation("linear", [(4, 8)], {"out_features": 8})
    pool = Operation("max_pool2d", [(4, 8, 8, 8)], {"kernel_size": 2})
    no, far = np.zeros(3, dtype=bool), np.full(3, np.inf)
    of_relu, of_linear, of_pool = calibration.log_errors("time", 0.9, Cases([relu, linear, pool], no, no, far))
    assert of_linear > 2 * of_relu
    assert of_relu < of_pool < of_linear


@pytest.mark.parametrize(("count", "low", "high"), [(20, 0.75, 1.0), (1000, 0.881, 0.918)])
def test_what_chance_allows(count, low, high):
    # 0.025 and 0.975 quantiles of the binomial distribution, from tables.
    assert chance_range(count, 0.9) == pytest.approx((low, high))


def test_calibration_comes_back_from_storage(calibration):
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    operations = simulated_operations()
    nothing = np.zeros(len(operations), dtype=bool)
    cases = Cases(operations, nothing, nothing, np.linspace(0, 9, len(operations)))
    watts = np.linspace(90, 110, len(operations))
    for asked in ("time", 0.9, cases), ("power", 0.9, cases), ("energy", 0.9, cases), ("power", 0.9, cases, watts):
        assert again.log_errors(*asked) == pytest.approx(calibration.log_errors(*asked), rel=1e-3)
    assert len(json.dumps(calibration.to_dict())) < 80_000
    few = _drawn("folds").where(np.arange(CASES) < 20)
    assert calibrate(Closeness({}), few) is None


def test_repeats_say_how_well_the_measured_is_known(dataset):
    rng = np.random.default_rng(0)
    noisy = tuple(
        replace(m, time_s=m.time_s * factor, energy_j=m.energy_j * factor)
        for m in dataset.measurements
        for factor in np.exp(0.02 * rng.standard_normal(3))
    )
    data = replace(dataset, measurements=noisy)
    chip = fit_chip(data, "inference", ForestRecipe(trees=8))
    errors = errors_on_repeats(data, chip)
    # A repeat against the median of two others: sqrt(1 + 1/2) times its own spread, and no less for having been seen.
    assert np.std(errors.log_errors("time")) == pytest.approx(0.02 * np.sqrt(1.5), rel=0.15)
    assert len(errors_on_repeats(dataset, chip)) == 0


def _network_errors(dataset, calibration, count=60):
    """Networks of one operation each, half of them far from the data, that err as much as that."""
    rng = np.random.default_rng(1)
    networks, parts, errors = [], [], []
    for i in range(count):
        distance, sigma = (2.0, 0.02) if i % 2 else (6.0, 0.2)
        no = np.zeros(1, dtype=bool)
        parts.append(Parts(np.ones(1), Cases((Operation("relu", [(4, 8)]),), no, no, np.array([distance]))))
        networks.append(replace(dataset.networks[0], network=f"net{i}", time_s=1.0, energy_j=1.0, power_w=1.0))
        errors.append(np.exp(sigma * rng.standard_normal(2)))
    return with_variances(Errors.of_networks("name", A30.name, networks, *np.array(errors).T, parts=parts), calibration)


def test_networks_that_are_hard_get_wider_intervals(dataset, calibration):
    errors = _network_errors(dataset, calibration)
    made = fit_networks({"overlap": errors, "sum": errors}, "simulated")
    variances = {quantity: errors[f"variances of {quantity}"] for quantity in ("time", "power", "energy")}
    difficulty = made.summed(variances)
    hard, easy = difficulty["time"][:2]
    assert hard > 3 * easy
    assert difficulty["edp"] == pytest.approx(difficulty["time"] + difficulty["energy"])
    assert set(made.scores) == {"overlap", "sum"}
    (row,) = network_coverage(errors, 0.9)
    assert row.cases == 60
    assert all(0.8 < row.within[quantity] <= 1 for quantity in ("time", "energy", "edp"))
    again = NetworkCalibration.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again.summed(variances)["time"][0] == hard


@pytest.fixture(scope="module")
def predictor(dataset, calibration):
    chip = fit_chip(dataset, "inference", ForestRecipe(trees=8))
    networks = fit_networks({"overlap": _network_errors(dataset, calibration)}, "simulated")
    return NetworkPredictor(
        "test/forest",
        chip_alone(replace(chip, calibration=calibration)),
        HostModel(5e-6, learned=True),
        network_errors=networks,
    )


def test_intervals_of_operations(predictor):
    operations = [*simulated_operations()[:2], Operation("relu", [(32, 48, 40, 40)])]
    found = predictor.operations.predict(operations)
    interval = found.interval(0.9)
    for name, value in (("time_s", found.time_s), ("power_w", found.power_w), ("energy_j", found.energy_j)):
        low, high = getattr(interval, name)
        assert (low < value).all()
        assert (value < high).all()
        if name != "power_w":
            assert low * high == pytest.approx(value**2)
    assert (interval.power_w[0] >= 33.0).all()  # The idle power of the A30.
    assert (interval.power_w[1] <= A30.power_limit_w).all()
    other = predictor.operations.predict(operations, 720).interval(0.9)
    assert (other.time_s[1] / other.time_s[0] > interval.time_s[1] / interval.time_s[0]).all()
    with pytest.raises(InputError, match="between 0 and 1"):
        found.interval(0)
    huge = predictor.operations.predict([Operation("relu", [(2**14, 2**6, 2**7, 2**7)])])
    assert huge.far_outside.tolist() == [True]
    assert not found.far_outside[:2].any()


def test_unmeasured_kinds_have_wide_intervals(predictor):
    size = (32, 48, 40, 40)
    operations = [Operation("where", [size] * 3), Operation("add", [size] * 2), Operation("relu", [size])]
    found = predictor.operations.predict(operations)
    high_s = found.interval(0.9).time_s[1] / found.time_s
    assert high_s[0] == pytest.approx(2.0)  # Nine of ten lie within a factor of two.
    assert (high_s[1:] < 1.8).all()  # The width that follows from the simulated errors.
    # Normal log errors: 0.674 and 1.645 standard deviations for half and nine of ten.
    narrow = found.interval(0.5)
    assert narrow.time_s[1][0] / found.time_s[0] == pytest.approx(2 ** (0.6745 / 1.6449), rel=1e-3)
    assert narrow.energy_j[0][0] / found.energy_j[0] == pytest.approx(2 ** (-0.6745 / 1.6449), rel=1e-3)


def test_kinds_are_measured_in_some_dataset_or_in_the_training_data_and_none_in_fp64_that_does_anything():
    sort = Operation("sort", [(64, 32)], {"dim": -1})
    assert never_measured([sort]).tolist() == [True]
    assert never_measured([sort], {"sort"}).tolist() == [False]
    relu, dropout = Operation("relu", [(64, 32)], precision="fp64"), Operation("dropout", [(64, 32)], precision="fp64")
    assert never_measured([relu, relu.replace(precision="fp32"), dropout]).tolist() == [True, False, False]
    assert set(KINDS) >= MEASURED_KINDS


def test_interval_of_a_network(predictor):
    usual = predictor.predict(Network.of([(op, 2) for op in simulated_operations()[-4:]]))
    assert not usual.far_outside
    assert usual.interval_basis == "simulated"
    narrow, wide = usual.interval(0.5), usual.interval(0.9)
    assert wide.time_s[0] < narrow.time_s[0] < usual.time_s < narrow.time_s[1] < wide.time_s[1]
    far = predictor.predict(Network.of([(Operation("relu", [(2**14, 2**6, 2**7, 2**7)]), 2)]))
    assert far.far_outside
    assert any("far outside the training data" in note for note in far.notes)
    assert np.divide(*far.interval().time_s) < np.divide(*wide.time_s)
    assert far.to_dict()["far_outside"]


def test_powers_of_devices_are_known_where_the_gpu_decides():
    """A family without errors of time has those of all, and one without errors of power as well."""
    errors = {"": [0.5] * 9, "elementwise": [0.1] * 9}
    powers = {"": [0.3] * 9, "elementwise": [0.2] * 9, "matmul": [0.4] * 9}
    calibration = Calibration.of_device_errors(errors, {"power": powers, "energy": powers})
    relu, linear = Operation("relu", [(4, 8)]), Operation("linear", [(4, 8)], {"out_features": 8})
    operations = [relu, relu, linear, Operation("max_pool2d", [(4, 8, 8, 8)], {"kernel_size": 2})]
    host, no, far = np.array([False, True, False, False]), np.zeros(4, dtype=bool), np.zeros(4)
    of_power = [0.2, np.nan, 0.4, 0.3]
    for quantity, expected in (("time", [0.1, 0.1, 0.5, 0.5]), ("power", of_power), ("energy", of_power)):
        found = calibration.log_errors(quantity, 0.9, Cases(operations, host, no, far))
        assert found == pytest.approx(expected, nan_ok=True)
