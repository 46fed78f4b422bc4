"""The registry of a real MLflow server: train, register, promote, predict; and what can go wrong on the way."""

import shutil
from dataclasses import replace

import pytest
from mlflow_servers import frame
from simulated_measurements import simulated_dataset, simulated_operations

import joulecast
from conftest import SMALL_RECIPE, needs, train_small
from joulecast.datasets import save
from joulecast.errors import InputError, TrackingError, ZooError
from joulecast.zoo import find_predictor, registry
from joulecast.zoo.files import StoredEntry
from joulecast.zoo.promotion import promote
from joulecast.zoo.registry import OUTPUTS, register, registry_folder
from joulecast.zoo.server import connected

pytestmark = [needs("mlflow"), pytest.mark.usefixtures("fresh_cache"), pytest.mark.filterwarnings("ignore")]
MODEL = "joulecast-a30-inference"
CHAMPION = f"models:/{MODEL}@champion"


def forget_answers():
    """As after a minute."""
    for asked in (registry._holds, registry.version_of):
        asked.cache_clear()


@pytest.fixture
def client(mlflow_at, monkeypatch):
    import mlflow

    forget_answers()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_at)
    mlflow.set_tracking_uri(mlflow_at)
    client = mlflow.MlflowClient()
    yield client
    for name in (MODEL, "other"):
        with pytest.MonkeyPatch.context():
            for each in client.search_registered_models(f"name = '{name}'"):
                client.delete_registered_model(each.name)
    mlflow.set_tracking_uri(None)


def test_train_register_promote_predict(client, call, printed, tmp_path, small):
    import mlflow

    data = save(replace(simulated_dataset(), networks=()), tmp_path / "data")
    (tmp_path / "r.toml").write_text('predictor = "forest"\ntrees = 6\nfolds = 3\n')
    options = ["--dataset", data, "--recipe", tmp_path / "r.toml", "--zoo", tmp_path / "zoo", "--register"]
    out = printed("train", *options)
    assert f"models:/{MODEL}/1: is the champion, because it is the first version" in out

    # Any MLflow client.
    operations = simulated_operations()[:7]
    expected = small.predictor.operations.predict(operations)
    loaded = mlflow.pyfunc.load_model(CHAMPION)
    found = loaded.predict(frame(operations))
    assert list(found) == list(OUTPUTS)
    assert found["energy_j"].to_numpy() == pytest.approx(expected.energy_j, rel=1e-4)
    slower = loaded.predict(frame(operations).assign(clock_mhz=900.0))
    assert (slower["device_time_s"] >= found["device_time_s"]).all()
    assert len(loaded.input_example) == 2

    # joulecast itself, from its cache.
    assert joulecast.predict_operations(operations, "A30", predictor=CHAMPION).energy_j == pytest.approx(
        expected.energy_j, rel=1e-4
    )
    assert find_predictor("A30", "inference", f"models:/{MODEL}/1").name == "a30/forest-inference"

    # The run records how the predictor was trained.
    version = client.get_model_version(MODEL, "1")
    run = client.get_run(version.run_id)
    assert run.data.tags["stage"] == "train"
    assert run.inputs.dataset_inputs[0].dataset.name == "NVIDIA A30"
    assert run.data.metrics["operations in folds/simulated/conv2d/time_median"] < 0.2

    # A worse one stays challenger, unless forced.
    worse = train_small(tmp_path / "worse", replace(SMALL_RECIPE, trees=1, min_samples_leaf=30)).save(tmp_path / "w")
    code, out, _ = call("zoo", "push", worse, "models:/")
    assert f"models:/{MODEL}/2: is the challenger" in out
    code, out, _ = call("zoo", "promote", MODEL)
    assert code == 1
    assert "was not promoted: the challenger is not better" in out
    assert client.get_model_version_by_alias(MODEL, "champion").version == "1"
    out = printed("zoo", "promote", MODEL, "--force")
    assert "forced, although the challenger is not better" in out
    assert client.get_model_version(MODEL, "2").tags["joulecast.promotion_forced"] == "true"
    assert client.get_model_version_by_alias(MODEL, "champion").version == "2"
    assert "challenger" not in client.get_registered_model(MODEL).aliases

    # The better one becomes champion again.
    out = printed("zoo", "promote", MODEL, "--version", "1")
    assert "is the champion: the challenger is better" in out
    assert call("zoo", "promote", MODEL, "--version", "1")[:2] == (1, f"{MODEL}/1 is the champion already\n")
    assert call("zoo", "promote", MODEL)[0] == InputError.exit_code


def test_a_killed_registration_is_completed_by_another(client, small_entry, monkeypatch):
    import mlflow

    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    # Killed after the files, then after the version, each time before the next step.
    for step, versions in (("create_model_version", 0), ("set_registered_model_alias", 1)):
        with monkeypatch.context() as context:
            context.setattr(mlflow.MlflowClient, step, killed)
            with pytest.raises(Killed):
                register(small_entry)
        assert len(client.search_model_versions(f"name = '{MODEL}'")) == versions
        assert client.get_registered_model(MODEL).aliases == {}
        with pytest.raises(TrackingError, match="has no such object"):
            registry_folder(CHAMPION)
    assert register(small_entry).said == "is the champion, because it is the first version"
    assert register(small_entry).said == "is the champion"
    assert [each.version for each in client.search_model_versions(f"name = '{MODEL}'")] == ["1"]
    assert StoredEntry.of(registry_folder(CHAMPION)).sha256 == StoredEntry.of(small_entry).sha256


def test_other_kinds_of_models_are_refused(client, small_entry):
    client.create_registered_model("other")
    run = client.create_run("0")
    client.log_text(run.info.run_id, "a model of something else", "model/MLmodel")
    client.create_model_version("other", f"{run.info.artifact_uri}/model", run_id=run.info.run_id)
    with pytest.raises(ZooError, match="not registered by joulecast"):
        find_predictor("A30", "inference", "models:/other/1")


def test_files_that_were_exchanged_in_the_registry_are_refused(client, small_entry):
    version = register(small_entry).version
    client.set_model_version_tag(MODEL, version, "joulecast.entry_sha256", "0" * 64)
    with pytest.raises(ZooError, match="changed after it was registered"):
        registry_folder(f"models:/{MODEL}/{version}")


def test_missing_models_and_versions_are_reported(client):
    for uri in (CHAMPION, "models:/nothing/1"):
        with pytest.raises(TrackingError, match="MLflow has no such object") as caught:
            registry_folder(uri)
        assert "next:" in str(caught.value)
    with pytest.raises(InputError, match="not the name of a model in a registry"):
        registry_folder("models:/x")
    with pytest.raises(TrackingError, match="nothing was promoted"):
        promote("nothing")


def test_a_version_in_the_cache_needs_no_server(client, small_entry, monkeypatch):
    version = register(small_entry).version
    folder = registry_folder(f"models:/{MODEL}/{version}")
    monkeypatch.setattr("joulecast.zoo.registry.connected", None)
    assert registry_folder(f"models:/{MODEL}/{version}") == folder


@pytest.mark.parametrize("store", ["server", "file"])
def test_a_registry_that_was_made_anew_has_other_models_under_the_same_numbers(
    store, client, empty_mlflow_database, small_entry, tmp_path, monkeypatch
):
    """Deleting a model and registering another one leaves address, name and version as they were."""
    if store == "file":
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_mlflow_database, tmp_path)}")
    other = train_small(tmp_path / "other", replace(SMALL_RECIPE, trees=2)).save(tmp_path / "zoo")
    for entry in (small_entry, other):
        registered = register(entry)
        assert registered.version == "1"
        forget_answers()
        for name in (f"models:/{MODEL}/1", CHAMPION):
            assert StoredEntry.of(registry_folder(name)).sha256 == StoredEntry.of(entry).sha256
        with connected(None, "") as mlflow:
            mlflow.MlflowClient().delete_registered_model(MODEL)
    forget_answers()
    with pytest.raises(TrackingError, match="MLflow has no such object"):
        registry_folder(f"models:/{MODEL}/1")


def test_a_server_that_is_down(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(TrackingError, match="cannot be reached") as caught:
        joulecast.predict_operations(simulated_operations()[:1], "A30", predictor=CHAMPION)
    assert "need no registry" in str(caught.value)
    assert joulecast.predict_operations(simulated_operations()[:1], "A30").energy_j[0] > 0


def test_reading_creates_no_registry(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    for ask in (lambda: registry_folder(CHAMPION), lambda: promote(MODEL)):
        with pytest.raises(TrackingError, match="there is no MLflow registry here"):
            ask()
    assert list(tmp_path.iterdir()) == []


def test_mlflow_is_left_as_it_was(tmp_path):
    import os

    import mlflow

    before, environment = mlflow.get_tracking_uri(), dict(os.environ)
    with connected(f"sqlite:///{tmp_path / 'x' / 'mlflow.db'}", "nothing"), connected(None, "nothing"):
        pass
    assert mlflow.get_tracking_uri() == before
    assert dict(os.environ) == environment
