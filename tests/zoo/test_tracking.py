"""Training, evaluating and tuning are tracked in MLflow: settings, metrics, datasets, report, curves."""

from dataclasses import replace

import pytest
from simulated_measurements import simulated_gpu

from conftest import SMALL_RECIPE, needs
from joulecast.errors import TrackingError
from joulecast.predictors.fitting.fit import fit_on_all
from joulecast.predictors.model.shared import AnyGpuPredictor
from joulecast.predictors.recipes import TransformerRecipe
from joulecast.zoo.tracking import track, track_evaluation, tuning

# MLflow and its dependencies raise warnings about themselves.
pytestmark = [needs("mlflow"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def client(mlflow_at):
    import mlflow

    return mlflow.MlflowClient(mlflow_at)


def test_a_run_holds_what_is_needed(small, small_entry, mlflow_at, client):
    run_id = track(small, SMALL_RECIPE, small_entry, mlflow_at, command="joulecast train")
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["trees"] == "6"
    assert run.data.params["seed"] == "0"
    assert run.data.params["version_numpy"]
    assert run.data.params["dataset_sha256"] == small.card.data[0]["sha256"]
    assert run.data.metrics["operations in folds/simulated/time_r2"] > 0.9
    assert run.data.metrics["operations in folds/simulated/linear/power_mean"] < 0.2
    tags = {name: run.data.tags[name] for name in ("gpu", "mode", "predictor", "precision", "stage", "command")}
    assert tags == {
        "gpu": "NVIDIA A30",
        "mode": "inference",
        "predictor": "forest",
        "precision": ",".join(small.card.precisions),
        "stage": "train",
        "command": "joulecast train",
    }
    assert len(run.data.tags["git_commit"].rstrip("+")) in (40, len("unknown"))
    (dataset,) = run.inputs.dataset_inputs
    assert small.card.data[0]["sha256"].startswith(dataset.dataset.digest)
    assert dataset.tags[0].key == "mlflow.data.context"
    assert [item.path for item in client.list_artifacts(run_id, "report")] == ["report/REPORT.md"]
    assert run.outputs.model_outputs


def test_losses_of_a_transformer_are_curves(small, small_entry, mlflow_at, client):
    pytest.importorskip("torch")
    tiny = TransformerRecipe(width=8, heads=2, kind_layers=1, kind_feed_forward=2, epochs=3, batch=32)
    learned = fit_on_all([simulated_gpu("A30")], (), tiny)
    trained = replace(small, predictor=AnyGpuPredictor("any", learned, {}))
    run_id = track(trained, SMALL_RECIPE, small_entry, mlflow_at, command="joulecast train")
    logged = client.get_metric_history(run_id, "curves/transformer/loss_alone")
    assert [(m.step, m.value) for m in logged] == [*enumerate(learned.curves["transformer/loss_alone"])]


def test_an_evaluation_is_a_run(small, mlflow_at, client, tmp_path):
    report = tmp_path / "REPORT.md"
    report.write_text("# A report\n")
    data = [{"gpu": "NVIDIA A30", "clock_mhz": None, "source": "simulated", "licence": "none", "sha256": "ab" * 32}]
    run_id = track_evaluation(
        "forest", [small.validation], SMALL_RECIPE, data, report, mlflow_at, command="joulecast evaluate"
    )
    run = client.get_run(run_id)
    assert run.data.tags["stage"] == "evaluate"
    assert run.data.metrics["operations in folds/simulated/time_median"] < 0.1
    assert run.inputs.dataset_inputs[0].dataset.digest == ("ab" * 32)[:36]
    assert "report/REPORT.md" in {item.path for item in client.list_artifacts(run_id, "report")}


def test_trials_are_nested_runs(mlflow_at, client):
    with tuning("search", {"gpu": "NVIDIA A30"}, mlflow_at, command="joulecast train --tune") as log:
        trials = [log.trial({"depth": depth}, {"error": 1 / depth, "undefined": float("nan")}) for depth in (4, 8)]
        log.best({"depth": 8}, {"error": 0.125})
    parent = client.get_run(log.run_id)
    assert parent.data.params["best_depth"] == "8"
    assert parent.data.tags["stage"] == "tuning"
    for trial, depth in zip(trials, ("4", "8"), strict=True):
        run = client.get_run(trial)
        assert run.data.tags["mlflow.parentRunId"] == log.run_id
        assert run.data.params == {"depth": depth}
        assert set(run.data.metrics) == {"error"}


def test_a_run_that_fails_says_so(mlflow_at, client):
    with pytest.raises(ZeroDivisionError), tuning("fails", {}, mlflow_at, command="x") as log:
        1 / 0  # noqa: B018
    assert client.get_run(log.run_id).info.status == "FAILED"


def test_a_folder_that_cannot_be_written_to_is_one_error(small, small_entry, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match="rejected this request"):
        track(small, SMALL_RECIPE, small_entry, f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}", command="x")
