"""The transformer as a zoo entry: round trip, sizes, damage, found by name."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from simulated_measurements import simulated_gpu, simulated_operations

from conftest import rewrite
from joulecast.datasets import NetworkMeasurement, save
from joulecast.errors import ZooError
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.recipes import TransformerRecipe
from joulecast.zoo import entries, find_predictor
from joulecast.zoo.entry import load_any
from joulecast.zoo.training import train_any_gpu

pytest.importorskip("torch")
pytest.importorskip("xgboost")

TINY = TransformerRecipe(width=8, heads=2, kind_layers=1, kind_feed_forward=2, epochs=2, batch=32, folds=2)


def measured_networks(gpus):
    operations = simulated_operations()
    for gpu in map(find_gpu, gpus):
        for first in (0, 40):
            network = Network.of([(operation, 3) for operation in operations[first : first + 8]], name=f"net{first}")
            m = NetworkMeasurement(network.name, (1,), "fp32", "inference", 2e-3, 60.0, 0.12)
            yield gpu, m, network


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [(save(data, folder / data.card.gpu), data) for data in map(simulated_gpu, ("A30", "T4"))]


@pytest.fixture(scope="module")
def transformer(data):
    networks = [*measured_networks(("A30", "T4"))]
    networks += [(gpu, replace(m, mode="training"), in_training(network)) for gpu, m, network in networks]
    return train_any_gpu(data, networks, TINY, quick=True)


def in_training(network):
    calls = [(replace(entry.operation, mode="training"), entry.count) for entry in network]
    return Network.of(calls, name=network.name)


def test_a_stored_predictor_predicts_as_the_trained_one(transformer, tmp_path):
    entry = transformer.save(tmp_path)
    gpu, operations = find_gpu("H100 SXM"), simulated_operations()
    before = SharedByAll(transformer.predictor).on(gpu, "inference").predict(operations)
    after = find_predictor(gpu, "inference", str(entry)).operations.predict(operations)
    assert after.device_time_s == pytest.approx(before.device_time_s, rel=1e-4)
    assert after.power_w == pytest.approx(before.power_w, rel=1e-4)
    again = replace(transformer, predictor=load_any(entry).learned).save(tmp_path / "again")
    weights = "transformer.safetensors.z"
    assert (again / weights).read_bytes() == (entry / weights).read_bytes()


def test_the_card_says_how_it_was_tested(transformer, tmp_path):
    text = (transformer.save(tmp_path) / "README.md").read_text()
    assert "a third of its passes" in text
    assert "Networks, nothing known of their chip" in text
    assert {e.known for e in transformer.validation.networks} == {"nothing", "networks"}


# File -> values that an attacker who knows the format could write into it.
HOSTILE = {
    "errors that are a number": ("card.json", lambda card: card["log_errors"]["training"].update(edp=-1)),
    "errors that lack a quantity": ("card.json", lambda card: card["log_errors"]["training"].pop("power")),
    "errors out of order": ("card.json", lambda card: card["log_errors"]["training"].update(time=[2, 1])),
    "errors within errors": ("card.json", lambda card: card["log_errors"]["training"].update(time=[[1]])),
    "errors for some families only": ("card.json", lambda card: card.update(device_errors={"conv": [1]})),
    "fewer kinds than vectors": ("predictor.json", lambda facts: facts["vocabulary"].pop()),
    "more kinds than vectors": ("predictor.json", lambda facts: facts["vocabulary"].append("relu6")),
    "a vocabulary of lists": ("predictor.json", lambda facts: facts.update(vocabulary=[[]] * len(facts["vocabulary"]))),
    "launches of some kinds only": ("predictor.json", lambda facts: facts["host_s"]["training"].pop("")),
    "another form of the facts": ("predictor.json", lambda facts: facts.update(recipe=[])),
}


@pytest.mark.parametrize(("file", "change"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused_when_loading(transformer, tmp_path, file, change):
    entry = transformer.save(tmp_path)
    values = json.loads((entry / file).read_text())
    change(values)
    rewrite(entry, file, values)
    with pytest.raises(ZooError):
        load_any(entry)


def test_loading_and_predicting_need_no_torch(transformer, tmp_path):
    script = (
        "import json, sys, joulecast as j\n"
        "o = j.Operation('linear', [(512, 512)], {'out_features': 512})\n"
        "found = [j.predict([(o, 3)], None, 'L40S', predictor=sys.argv[1]).time_s]\n"
        "heavy = {'torch', 'sklearn', 'xgboost', 'scipy', 'onnx', 'safetensors', 'mlflow'} & set(sys.modules)\n"
        "print(json.dumps([*found, *heavy]))\n"
    )
    entry = transformer.save(tmp_path)
    run = subprocess.run([sys.executable, "-c", script, str(entry)], capture_output=True, text=True, check=True)
    (time_s,) = json.loads(run.stdout)
    assert time_s > 0


@pytest.mark.skipif("any-gpu/transformer" not in entries(), reason="the zoo has no transformer")
def test_the_shipped_one_serves_every_gpu_by_name():
    found = find_predictor("A100-PCIE-40GB", "training", "any-gpu/transformer")
    assert found.any_gpu
    assert find_predictor("MI300X", "inference", "any-gpu/transformer").name == "any-gpu/transformer"
