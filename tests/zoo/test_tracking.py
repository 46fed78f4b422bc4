"""Training is tracked in MLflow: settings, metrics, report, and a model that any MLflow client can use."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from conftest import simulated_dataset, simulated_operations
from joulecast.datasets import save
from joulecast.predictors.recipe import ForestRecipe
from joulecast.zoo.tracking import TrackingError, track
from joulecast.zoo.training import train

# MLflow and what it imports warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore")
RECIPE = ForestRecipe(trees=4, folds=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = replace(simulated_dataset(), networks=())
    folder = save(data, tmp_path_factory.mktemp("data") / "d")
    return train(data, folder, "inference", RECIPE, {})


def test_a_run_holds_what_is_needed(trained, tmp_path):
    import mlflow
    import pandas as pd

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    entry = trained.save(tmp_path / "zoo")
    run_id = track(trained, RECIPE, entry, uri, command="joulecast train")
    client = mlflow.MlflowClient(uri)
    run = client.get_run(run_id)
    assert run.data.params["trees"] == "4"
    assert run.data.params["dataset_sha256"] == trained.card.data["sha256"]
    assert run.data.metrics["simulated/time_r2"] > 0.9
    assert run.data.tags["gpu"] == "NVIDIA A30"
    assert {item.path for item in client.list_artifacts(run_id, "report")} >= {
        "report/REPORT.md",
        "report/a30-inference-operations.png",
    }
    (model,) = mlflow.search_logged_models(experiment_ids=[run.info.experiment_id], output_format="list")
    loaded = mlflow.pyfunc.load_model(model.model_uri)
    operations = simulated_operations()[:5]
    frame = pd.DataFrame({"operation": [json.dumps(operation.to_json()) for operation in operations]})
    assert loaded.predict(frame)["time_s"].to_numpy() == pytest.approx(
        trained.predictor.predict(operations).time_s, rel=1e-4
    )
    assert (tmp_path / "mlartifacts").is_dir()


def test_a_server_that_is_down_is_one_error(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    entry = trained.save(tmp_path / "zoo")
    with pytest.raises(TrackingError, match="did not take this run"):
        track(trained, RECIPE, entry, "http://127.0.0.1:9", command="joulecast train")
