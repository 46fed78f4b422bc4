"""The entry that serves any GPU: round trip, damage, and how it is found."""

import json
from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_gpu, simulated_operations

import joulecast
from joulecast.datasets import NetworkMeasurement, save
from joulecast.hardware import find_gpu
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.recipes import BoostingRecipe, RooflineRecipe
from joulecast.zoo import entries, find_predictor
from joulecast.zoo.entry import load_any
from joulecast.zoo.training import renew_hosts, train_any_gpu

A30 = find_gpu("A30")

pytest.importorskip("xgboost", reason="fits boosted trees")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    datasets = [(save(data, folder / data.card.gpu), data) for data in map(simulated_gpu, ("A30", "T4"))]
    return train_any_gpu(datasets, (), BoostingRecipe(trees=40, depth=4, learning_rate=0.2, folds=2))


@pytest.fixture
def entry(trained, tmp_path):
    return trained.save(tmp_path)


def test_a_stored_predictor_predicts_as_the_trained_one(trained, entry):
    gpu, operations = find_gpu("L4"), simulated_operations()
    before = SharedByAll(trained.predictor).on(gpu, "inference").predict(operations)
    after = load_any(entry).on(gpu, "inference").operations.predict(operations)
    assert after.device_time_s == pytest.approx(before.device_time_s, rel=1e-4)
    assert after.power_w == pytest.approx(before.power_w, rel=1e-4)


def test_the_host_cost_of_a_network_is_learned_again_without_training(entry):
    before = load_any(entry)
    network = joulecast.extract("resnet18", (1, 3, 64, 64))
    wanted = (
        replace(before, hosts={**before.hosts, "inference": HostModel(-11e-6)}).on(A30, "inference").predict(network)
    )
    seen = wanted.time_s, wanted.power_w, wanted.energy_j
    measured = NetworkMeasurement("resnet18", (1, 3, 64, 64), "default", "inference", *seen)
    renew_hosts(entry, [(A30, measured, network)])
    after = load_any(entry)
    assert after.hosts["inference"].offset_s == pytest.approx(-11e-6)
    assert after.hosts["training"] == before.hosts["training"]
    assert after.on(A30, "inference").predict(network).time_s == pytest.approx(wanted.time_s)


def test_the_card_says_what_matters(entry):
    text = (entry / "README.md").read_text()
    assert "| NVIDIA A30 | default | 100 | 0 | simulated | none |" in text
    assert "Limits" in text


def test_the_roofline_predictor_can_be_an_entry(tmp_path):
    data = simulated_gpu("T4")
    datasets = [(save(data, tmp_path / "data"), data)]
    entry = train_any_gpu(datasets, (), RooflineRecipe(folds=2)).save(tmp_path)
    assert entry.name == "roofline"
    # With a power cap that is never reached.
    gpu, operations = replace(find_gpu("L4"), power_limit_w=1e4, power_range_w=None), simulated_operations()
    found = load_any(entry).on(gpu, "inference").operations.predict(operations)
    # No kernel takes less than 1.7 us there.
    least_s = np.maximum(LeastTimes.of(operations, gpu, gpu.boost_clock_mhz).time_s, 1.7e-6)
    assert found.device_time_s == pytest.approx(least_s)
    facts = json.loads((entry / "predictor.json").read_text())
    assert facts == {"predictor": "roofline"}


@pytest.mark.skipif("any-gpu/boosting" not in entries(), reason="the zoo has no predictor for any GPU")
class TestShipped:
    def test_gpus_without_a_predictor_of_their_own_get_it(self):
        assert find_predictor("H100 SXM", "inference").name == "any-gpu/boosting"
        assert find_predictor("A30", "inference").name.startswith("a30/")
        assert find_predictor("A30", "training", "any-gpu/boosting").any_gpu

    @pytest.mark.parametrize("name", ["any-gpu/boosting", "any-gpu/transformer"])
    @pytest.mark.parametrize("mode", ["inference", "training"])
    def test_each_predicts_by_its_name(self, name, mode):
        found = joulecast.predict("resnet18", (8, 3, 224, 224), "L40S", mode=mode, predictor=name)
        assert found.predictor == name
        assert not found.uncovered
        assert 0 < found.power_w <= find_gpu("L40S").power_limit_w

    def test_a_prediction_says_so_and_has_an_interval(self):
        operation = joulecast.Operation("linear", [(4096, 4096)], {"out_features": 4096})
        found = joulecast.predict([(operation, 10)], None, "A100-PCIE-40GB", 900)
        assert any("has no predictor of its own" in note for note in found.notes)
        low, high = found.interval(0.9).energy_j
        assert low < found.energy_j < high
        # 10 x 137 GFLOP at 900 of 1410 MHz of 19.5 TFLOP/s take 110 ms at the very least.
        assert 0.110 < found.time_s < 0.2

    def test_more_work_costs_more(self):
        for gpu in ("T4", "V100 PCIe 32GB", "L4", "H100 SXM", "RTX 4090", "B200", "MI300X"):
            operations = [joulecast.Operation("linear", [(n, 2048)], {"out_features": 2048}) for n in (512, 2048, 8192)]
            found = joulecast.predict_operations(operations, gpu)
            assert np.all(np.diff(found.device_time_s) > 0), gpu
            assert np.all(np.diff(found.dynamic_energy_j) > 0), gpu
