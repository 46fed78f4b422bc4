"""Power of kernels from readings to predictions."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_kernels

from joulecast import Operation
from joulecast.datasets import Dataset, save
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model.roofline import NoResidual
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.physics.power_cap import Jobs
from joulecast.predictors.recipes import KernelRecipe, TreeSettings
from joulecast.zoo.kernels_entry import load_kernels
from joulecast.zoo.kernels_training import train_kernels
from joulecast.zoo.training import Loaded

pytest.importorskip("xgboost", reason="fits boosted trees")
pytest.importorskip("scipy", reason="fits constants")

TREES = TreeSettings(trees=20, depth=4, learning_rate=0.3, min_child_weight=5.0)
RECIPE = KernelRecipe(generation=TREES, other_generations=TREES, constants_rows=50, folds=4)
H100, H200 = find_gpu("H100 SXM"), find_gpu("H200")


def with_readings(data: Dataset) -> Dataset:
    """Bursts and long runs of them. A long run draws 350 W; large products draw the cap and are 12 % slower."""
    runs = []
    for m in data.measurements:
        if m.sustained is None and m.operation.attributes["implementation"] == "pytorch":
            capped = m.operation.input_shapes[0][0] >= 512
            power_w, device_s = (700.0, m.device_time_s * 1.12) if capped else (350.0, m.device_time_s)
            read = {"power_w": power_w, "energy_j": power_w * device_s, "device_time_s": device_s, "sustained": True}
            runs.append(replace(m, time_s=device_s, **read))
    return replace(data, measurements=(*data.measurements, *runs))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    datasets = [with_readings(simulated_kernels(name)) for name in (H100.name, H200.name)]
    return train_kernels([Loaded(save(data, folder / data.card.gpu), data) for data in datasets], RECIPE)


def linear(rows, columns=8192, reduction=8192):
    return Operation("linear", [(rows, reduction)], {"out_features": columns, "bias": False}, precision="bf16")


def predictor(kernels, gpu=H200):
    return SharedByAll(NoResidual(), kernels=kernels).on(gpu, "inference")


def test_power_below_the_cap_is_what_was_read(trained):
    long, shorter = linear(64, 28672), linear(64, 1024)  # 470 MB of weights take 98 us, 17 MB take 4 us
    demand_w = trained.predictor.demand_w(OperationList([long, shorter]), H200)
    assert demand_w == pytest.approx([350, 350], rel=0.03)
    read_w, faded_w = predictor(trained.predictor).predict([long, shorter]).power_w
    assert read_w == pytest.approx(350, rel=0.03)
    # No power was read of kernels below 60 us. Energy constants know half of this, and count more in shorter ones.
    assert faded_w < 0.9 * read_w


def test_a_long_run_sits_at_the_cap_and_takes_longer_than_a_burst(trained):
    predictions = predictor(trained.predictor).predict([linear(4096)])
    assert predictions.power_w[0] == pytest.approx(H200.power_limit_w, rel=0.01)
    assert predictions.held_clock_mhz[0] < 0.95 * H200.boost_clock_mhz
    # One call after the other is a network of this one operation: what ran in 1.12 of the burst's time.
    uncapped = predictor(trained.predictor).predict_for_network([linear(4096)], H200.power_limit_w)
    jobs = Jobs.of([uncapped.work], [np.ones(1)], [(0.0, 1.0, H200.power_limit_w)])
    _, device_s, _ = jobs.settled(np.array([[float(H200.boost_clock_mhz)]]))
    assert device_s[0, 0] / predictions.device_time_s[0] == pytest.approx(1.12, abs=0.03)


def test_many_gpus_at_once_give_what_each_gives_alone(trained):
    engine = Operation("linear", [(64, 512)], {"out_features": 256, "implementation": "tensorrt_llm"}, precision="bf16")
    some = [linear(1), linear(64), engine, Operation("relu", [(8, 8)])]
    gpus = [find_gpu(name) for name in ("H200", "H100 SXM", "B200", "A30", "MI210")]
    together = OperationList(some)
    trained.predictor.prefetch(together, gpus)
    for gpu in gpus:
        # In another order, because a list of the same operations would be answered from the cache.
        alone = OperationList(reversed(some))
        for of in (trained.predictor.device_s, trained.predictor.demand_w):
            np.testing.assert_array_equal(of(together, gpu), of(alone, gpu)[::-1])


def test_older_generations_keep_the_energies_of_physics(trained):
    old = find_gpu("A100 SXM4 80GB")
    assert np.isnan(trained.predictor.demand_w(OperationList([linear(64)]), old)).all()


def test_what_is_stored_says_the_same_of_power(trained, tmp_path):
    stored = load_kernels(trained.save(tmp_path)).kernels
    operations = OperationList([linear(1), linear(64), linear(4096)])
    for gpu in (H200, find_gpu("H100 PCIe"), find_gpu("B200")):
        # Stored trees add up in another precision. A rounding error in a time may lead to another leaf of the power.
        assert stored.demand_w(operations, gpu) == pytest.approx(trained.predictor.demand_w(operations, gpu), rel=1e-3)
    (row,) = [
        row
        for row in trained.card.errors
        if (row["split"], row["where"], row["what"]) == ("measured", H200.name, "linear, half")
    ]
    assert 0 < row["power"]["mean"] < 0.1
    (calibration, _), *_ = stored.calibrations(operations, H200)
    assert calibration.groups["GPU"][0].errors["power"].max() < 0.1
