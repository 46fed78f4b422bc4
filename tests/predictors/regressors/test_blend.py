"""The blended predictor on simulated loops: better than trees alone, lawful, and stored."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_operations

from joulecast import Operation
from joulecast.datasets import save
from joulecast.errors import ZooError
from joulecast.predictors.evaluation.left_out import cross_validate
from joulecast.predictors.fitting.fit import fit_own
from joulecast.predictors.recipes import BlendRecipe
from joulecast.predictors.regressors.blend import stored_blend
from joulecast.zoo import load_entry
from joulecast.zoo.training import train

RECIPE = BlendRecipe(trees=8, folds=3, power_share=0.5)


@pytest.fixture(scope="module")
def predictor(dataset):
    return fit_own(dataset, "inference", RECIPE)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    data = replace(simulated_dataset(), networks=())
    trained = train(data, save(data, tmp_path_factory.mktemp("data") / "d"), "inference", RECIPE, {})
    return trained, trained.save(tmp_path_factory.mktemp("zoo"))


def test_unseen_operations_are_closer_than_by_trees_alone(dataset):
    alone, both = (
        cross_validate(dataset, "inference", replace(RECIPE, time_share=share), "simulated").summary()
        for share in (0.0, 0.8)
    )
    assert both["time_mean"] < 0.8 * alone["time_mean"]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Operation("relu", [(n, 64, 56, 56)]),
        lambda n: Operation("linear", [(49 * n, 256)], {"out_features": 1024}),
        lambda n: Operation("conv2d", [(n, 64, 28, 28)], {"out_channels": 64, "kernel_size": 3}, precision="fp32"),
    ],
    ids=["relu", "linear", "conv2d"],
)
def test_more_work_is_hardly_ever_cheaper(predictor, make):
    # Measured was n = 32 only: the rest is extrapolated, in both directions.
    device_s = predictor.predict([make(n) for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256)]).device_time_s
    assert (device_s[1:] > 0.9 * device_s[:-1]).all()
    assert device_s[-1] > 4 * device_s[6]


def test_a_stored_blend_predicts_as_the_trained_one(stored):
    trained, entry = stored
    assert entry.name == "blend-inference"
    operations = simulated_operations()
    before, after = trained.predictor.predict(operations), load_entry(entry).operations.predict(operations)
    assert after.time_s == pytest.approx(before.time_s, rel=1e-4)
    assert after.power_w == pytest.approx(before.power_w, rel=1e-4)


def test_a_blend_that_lacks_a_file_is_refused(predictor):
    files = predictor.time.to_files("time")
    assert set(files) == {"time.safetensors", "time-process.safetensors", "time-mixing.json"}
    for lost, says in (("time.safetensors", "trees of a regressor"), ("time-process.safetensors", "Gaussian process")):
        with pytest.raises(ZooError, match=f"{says} (is|are) missing"):
            stored_blend({name: data for name, data in files.items() if name != lost}, "time")


def test_a_blend_whose_process_has_no_share_is_its_trees(predictor):
    inputs = np.zeros((3, predictor.time.process.columns), dtype=np.float32)
    trees = stored_blend(predictor.time.trees.to_files("time"), "time")
    assert trees(inputs) == pytest.approx(predictor.time.trees(inputs), abs=1e-5)


@pytest.mark.parametrize(
    ("mixing", "says"),
    [
        ('{"share": 0.5, "falloff": 0}', "falloff"),
        ('{"share": 0.5, "falloff": -1}', "falloff"),
        ('{"share": 0.5, "falloff": 1e9}', "falloff"),
        ('{"share": 1.1, "falloff": 4}', "share"),
        ('{"share": 0, "falloff": 4}', "share"),
        ('{"share": "much", "falloff": 4}', "damaged"),
        ('{"share": true, "falloff": 4}', "damaged"),
        ('{"share": 0.5}', "damaged"),
        ("{", "damaged"),
    ],
)
def test_an_impossible_mixing_is_refused(predictor, mixing, says):
    files = {**predictor.time.to_files("time"), "time-mixing.json": mixing.encode()}
    with pytest.raises(ZooError, match=says):
        stored_blend(files, "time")


def test_the_process_has_no_weight_far_from_measured_operations(predictor):
    far = np.full((1, predictor.time.process.columns), 1e4, dtype=np.float32)
    assert predictor.time(far) == pytest.approx(predictor.time.trees(far))
