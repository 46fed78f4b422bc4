"""The transformer and an ensemble with it as zoo entries: round trip, sizes, damage, found by name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from conftest import simulated_gpu, simulated_operations
from joulecast.datasets import NetworkMeasurement, save
from joulecast.errors import ZooError
from joulecast.hardware import find_gpu
from joulecast.networks import Network
from joulecast.predictors.any_gpu import AnyGpuPredictor
from joulecast.predictors.any_gpu_recipes import EnsembleRecipe, Member
from joulecast.predictors.recipe import BoostingRecipe
from joulecast.predictors.transformer_recipe import TransformerRecipe
from joulecast.zoo import entries, find_predictor
from joulecast.zoo.any_gpu_entry import load_any_gpu
from joulecast.zoo.any_gpu_training import train_any_gpu

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("onnx")
pytest.importorskip("xgboost")

TINY = TransformerRecipe(width=8, heads=2, kind_layers=1, kind_feed_forward=2, epochs=2, batch=32, folds=2)
TREES = BoostingRecipe(trees=10, depth=3, learning_rate=0.3, folds=2)
BOTH = EnsembleRecipe((Member(TREES, 0.5), Member(TINY, 0.5)), folds=2)


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


@pytest.fixture(scope="module", params=[TINY, BOTH], ids=["transformer", "ensemble"])
def trained(request, data):
    return train_any_gpu(data, [*measured_networks(("A30", "T4"))], request.param, quick=True)


def test_a_stored_predictor_predicts_as_the_trained_one(trained, tmp_path):
    entry = trained.save(tmp_path)
    gpu, operations = find_gpu("H100 SXM"), simulated_operations()
    before = AnyGpuPredictor(gpu, "inference", trained.learned).predict(operations)
    after = find_predictor(gpu, "inference", str(entry)).operations.predict(operations)
    assert after.device_time_s == pytest.approx(before.device_time_s, rel=1e-4)
    assert after.power_w == pytest.approx(before.power_w, rel=1e-4)
    with pytest.raises(ZooError, match="just trained"):
        replace(trained, learned=load_any_gpu(entry).learned).save(tmp_path / "again")


def test_training_twice_gives_the_same_files(trained, tmp_path):
    one, other = trained.save(tmp_path / "one"), trained.save(tmp_path / "other")
    for path in one.iterdir():
        assert (other / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_card_says_how_it_was_tested(trained, tmp_path):
    text = (trained.save(tmp_path) / "README.md").read_text()
    assert "a third of its passes" in text
    assert "Networks, nothing known of their chip" in text
    assert {e.known for e in trained.validation.networks} == {"nothing", "networks"}


def test_damage_is_refused(trained, tmp_path):
    entry = trained.save(tmp_path)
    (onnx,) = entry.glob("*.onnx*")
    data = bytearray(onnx.read_bytes())
    data[len(data) // 2] ^= 1
    onnx.write_bytes(bytes(data))
    with pytest.raises(ZooError):
        load_any_gpu(entry)


def test_loading_and_predicting_need_no_torch(trained, tmp_path):
    script = (
        "import json, sys, joulecast as j\n"
        "o = j.Operation('linear', [(512, 512)], {'out_features': 512})\n"
        "found = [j.predict([(o, 3)], None, 'L40S', predictor=sys.argv[1]).time_s]\n"
        "heavy = {'torch', 'sklearn', 'xgboost', 'scipy', 'onnx', 'safetensors', 'mlflow'} & set(sys.modules)\n"
        "print(json.dumps([*found, *heavy]))\n"
    )
    entry = trained.save(tmp_path)
    run = subprocess.run([sys.executable, "-c", script, str(entry)], capture_output=True, text=True, check=True)
    (time_s,) = json.loads(run.stdout)
    assert time_s > 0


@pytest.mark.skipif("any-gpu/transformer" not in entries(), reason="the zoo has no transformer")
def test_the_shipped_one_serves_every_gpu_by_name():
    found = find_predictor("A100-PCIE-40GB", "training", "any-gpu/transformer")
    assert found.any_gpu
    assert find_predictor("MI300X", "inference", "any-gpu/transformer").name == "any-gpu/transformer"
