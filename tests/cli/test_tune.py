"""`joulecast train --tune`: searches first, logs each trial as a nested run, trains with the best, and explains it."""

import json
import shutil
from dataclasses import replace

import pytest
from simulated_measurements import simulated_dataset

from joulecast.datasets import save

RECIPE = """predictor = "xgboost"
trees = 3
patience = 10
folds = 3
[search]
trees = [3, 40]
learning_rate = [0.05, 0.3]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.toml").write_text(RECIPE)
    # Without networks, because leaving each of them out takes many fits, and has its own test.
    return save(replace(simulated_dataset(), networks=()), tmp_path / "data")


def test_the_best_of_a_search_is_trained_and_explained(printed, folder, tmp_path, empty_mlflow_database):
    import mlflow

    uri = f"sqlite:///{shutil.copy(empty_mlflow_database, tmp_path)}"
    train = ("train", "--dataset", folder, "--recipe", tmp_path / "x.toml", "--zoo", tmp_path / "zoo")
    out = printed(*train, "--tune", 5, "--tracking-uri", uri)
    assert "trees = 40" in out
    entry = tmp_path / "zoo" / "a30" / "xgboost-inference"
    assert json.loads((entry / "card.json").read_text())["recipe"]["trees"] == 40
    mlflow.set_tracking_uri(uri)
    runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
    trials = [run for run in runs if run.data.tags.get("stage") == "trial"]
    assert 2 <= len(trials) <= 4
    assert {run.data.tags["mlflow.parentRunId"] for run in trials} <= {run.info.run_id for run in runs}
    assert all(run.data.metrics["loss"] > 0 for run in trials)
    explain = ("explain", "relu", "32,64,28,28", "--gpu", "A30", "--predictor", entry)
    out = printed(*explain)
    assert "nearest measured" in out
    assert "input of the trees for time" in out


def test_a_recipe_without_a_search_space_is_refused(call, folder):
    code, _, err = call("train", "--dataset", folder, "--recipe", "forest", "--tune", 3, "--no-track")
    assert (code, "no search space" in err) == (2, True)
