"""Entries that serve any GPU, trees and the transformer: round trip, sizes, damage, and how they are found."""

import json
from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_gpu, simulated_operations

import joulecast
from conftest import needs, rewrite
from joulecast.datasets import NetworkMeasurement, save
from joulecast.errors import ZooError
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.predictors.evaluation.any_gpu import NETWORKS_KNOWN, NOTHING_KNOWN
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.recipes import RooflineRecipe, SharedForestRecipe, TransformerRecipe
from joulecast.zoo import entries, find_predictor
from joulecast.zoo.entry import load_any
from joulecast.zoo.trainers import renew_hosts, train
from joulecast.zoo.training import Loaded, Task

A30 = find_gpu("A30")

pytestmark = needs("sklearn", "torch")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [Loaded(save(data, folder / data.card.gpu), data) for data in map(simulated_gpu, ("A30", "T4"))]


@pytest.fixture(scope="module")
def trained(data):
    return train(Task(data, SharedForestRecipe(trees=10, folds=2)))


@pytest.fixture
def entry(trained, tmp_path):
    return trained.save(tmp_path)


@pytest.mark.parametrize("recipe", ["trained", "transformer"])
def test_a_stored_predictor_predicts_as_the_trained_one(request, tmp_path, recipe):
    trained, operations = request.getfixturevalue(recipe), simulated_operations()
    entry = trained.save(tmp_path)
    for gpu in map(find_gpu, ("L4", "H100 SXM")):
        before = SharedByAll(trained.predictor.learned).on(gpu, "inference").predict(operations)
        after = find_predictor(gpu, "inference", str(entry)).operations.predict(operations)
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


def test_the_roofline_predictor_can_be_an_entry(tmp_path):
    data = simulated_gpu("T4")
    entry = train(Task([Loaded(save(data, tmp_path / "data"), data)], RooflineRecipe(folds=2))).save(tmp_path)
    assert entry.name == "roofline"
    # With a power cap that is never reached.
    gpu, operations = replace(find_gpu("L4"), power_limit_w=1e4, power_range_w=None), simulated_operations()
    found = load_any(entry).on(gpu, "inference").operations.predict(operations)
    # No kernel takes less than 1.7 us there.
    least_s = np.maximum(LeastTimes.of(operations, gpu, gpu.boost_clock_mhz).time_s, 1.7e-6)
    assert found.device_time_s == pytest.approx(least_s)
    facts = json.loads((entry / "predictor.json").read_text())
    assert set(facts) == {"predictor", "hosts", "intervals"}


TINY = TransformerRecipe(width=8, heads=2, kind_layers=1, kind_feed_forward=2, epochs=2, batch=32, folds=2)


def measured_networks():
    for first in (0, 40):
        for mode in ("inference", "training"):
            calls = [(replace(each, mode=mode), 3) for each in simulated_operations()[first : first + 8]]
            network = Network.of(calls, name=f"net{first}")
            yield NetworkMeasurement(network.name, (1,), "fp32", mode, 2e-3, 60.0, 0.12), network


@pytest.fixture(scope="module")
def transformer(data):
    return train(Task([replace(each, networks=dict(measured_networks())) for each in data], TINY, quick=True))


def test_the_card_says_how_it_was_tested(transformer, tmp_path):
    text = (transformer.save(tmp_path) / "README.md").read_text()
    assert "a third of its passes" in text
    assert "### Networks by chip and name, inference" in text
    splits = set(transformer.validation.networks["split"].tolist())
    known = (NOTHING_KNOWN, NETWORKS_KNOWN)
    assert splits == {f"{split}, {mode}" for split in known for mode in ("inference", "training")}


def of_networks(facts):
    return facts["intervals"]["networks"]["training"]


# Values that an attacker who knows the format could write into an entry.
HOSTILE = {
    "errors that are a number": lambda facts: of_networks(facts).update(edp=-1),
    "errors that lack a quantity": lambda facts: of_networks(facts).pop("power"),
    "errors out of order": lambda facts: of_networks(facts).update(time=[2, 1]),
    "errors within errors": lambda facts: of_networks(facts).update(time=[[1]]),
    "errors for some families only": lambda facts: facts["intervals"].update(time={"conv": [1]}),
    "a vocabulary of lists": lambda facts: facts.update(vocabulary=[[]] * len(facts["vocabulary"])),
    "launches of some kinds only": lambda facts: facts["host_s"]["training"].pop(""),
    "another form of the facts": lambda facts: facts.update(recipe=[]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused_when_loading(transformer, tmp_path, change):
    entry = transformer.save(tmp_path)
    facts = json.loads((entry / "predictor.json").read_text())
    change(facts)
    rewrite(entry, "predictor.json", facts)
    with pytest.raises(ZooError):
        load_any(entry)


# What ships


@pytest.mark.skipif("any-gpu/forest" not in entries(), reason="the zoo has no predictor for any GPU")
class TestShipped:
    def test_gpus_without_a_predictor_of_their_own_get_it(self):
        assert find_predictor("H100 SXM", "inference").name == "any-gpu/forest"
        assert find_predictor("A30", "inference").name.startswith("a30/")
        assert find_predictor("A30", "training", "any-gpu/forest").any_gpu

    def test_a_prediction_says_so_and_has_an_interval(self):
        operation = joulecast.Operation("linear", [(4096, 4096)], {"out_features": 4096})
        found = joulecast.predict([(operation, 10)], None, "A100-PCIE-40GB", 900)
        assert any("has no predictor of its own" in note for note in found.notes)
        low, high = found.interval(0.9).energy_j
        assert low < found.energy_j < high
        # 10 x 137 GFLOP at 900 of 1410 MHz of 19.5 TFLOP/s take 110 ms at the very least.
        assert 0.110 < found.time_s < 0.2
