"""Servers as teams run them: PostgreSQL, a login, migration, backup and restore, kills. Run by `pytest -m slow`."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow_servers import address_of, mlflow_server
from processes import free_port, started
from simulated_measurements import simulated_dataset, simulated_operations

from conftest import SMALL_RECIPE, train_small
from joulecast.datasets import save
from joulecast.errors import TrackingError
from joulecast.predictors.model.shared import chip_alone
from joulecast.zoo.entries.files import StoredEntry
from joulecast.zoo.mlflow.registry import ENTRY_SHA256, promote, register, registry_folder

pytest.importorskip("mlflow")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_cache"), pytest.mark.filterwarnings("ignore")]

ROOM = Path(__file__).resolve().parents[2] / "mlflow"
MODEL = "joulecast-a30-inference"
CHAMPION = f"models:/{MODEL}@champion"


@pytest.fixture
def postgresql():
    """A PostgreSQL server of its own, with two empty databases; its address without the database."""
    pytest.importorskip("psycopg2")
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    # Not below pytest's folder, which is closed to others; and PostgreSQL does not run as root.
    folder = Path(tempfile.mkdtemp(prefix="joulecast-postgresql-"))
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(folder, "postgres")
    port, data = free_port(), folder / "data"

    def run(*command):
        # Without a pipe, which the server would inherit and hold open.
        with (folder / "commands").open("a") as log:
            subprocess.run([*as_user, *map(str, command)], check=True, stdout=log, stderr=log, cwd="/")

    run("initdb", "--pgdata", data, "--username", "mlflow", "--auth", "trust")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run("pg_ctl", "--pgdata", data, "--log", folder / "log", "--wait", "--options", options, "start")
    try:
        for name in ("mlflow", "restored"):
            run("createdb", "--host", "127.0.0.1", "--port", port, "--username", "mlflow", name)
        yield f"postgresql+psycopg2://mlflow@127.0.0.1:{port}"
    finally:
        run("pg_ctl", "--pgdata", data, "--mode", "immediate", "stop")
        shutil.rmtree(folder)


def frame(operations):
    import pandas as pd

    return pd.DataFrame({"operation": [json.dumps(operation.to_dict()) for operation in operations]})


def predicted(address):
    """What any MLflow client gets from the champion."""
    import mlflow

    mlflow.set_tracking_uri(address)
    try:
        found = mlflow.pyfunc.load_model(CHAMPION).predict(frame(simulated_operations()[:5]))
    finally:
        mlflow.set_tracking_uri(None)
    return found["energy_j"].tolist()


def train_command(tmp_path, name, uri, seed):
    data = save(replace(simulated_dataset(), networks=()), tmp_path / f"data-{name}")
    recipe = tmp_path / f"{name}.toml"
    recipe.write_text(f'predictor = "forest"\ntrees = 6\nfolds = 3\nseed = {seed}\n')
    options = ["--dataset", data, "--recipe", recipe, "--zoo", tmp_path / f"zoo-{name}", "--tracking-uri", uri]
    return [sys.executable, "-m", "joulecast", "train", *map(str, options), "--register"]


def test_two_trainings_at_once_into_one_sqlite_store(tmp_path):
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    one, other = (train_command(tmp_path, name, uri, seed) for seed, name in enumerate(("one", "other")))
    with started(one, **pipes) as first, started(other, **pipes) as second:
        for each in (first, second):
            out, err = each.communicate(timeout=600)
            assert each.returncode == 0, err
            assert f"models:/{MODEL}/" in out
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("joulecast")
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 2
    assert {run.data.params["seed"] for run in runs} == {"0", "1"}
    versions = client.search_model_versions(f"name = '{MODEL}'")
    assert {str(version.version) for version in versions} == {"1", "2"}
    assert {alias: str(version) for alias, version in client.get_registered_model(MODEL).aliases.items()} == {
        "champion": "1",
        "challenger": "2",
    }


def test_postgresql_from_training_to_prediction_and_back_from_a_backup(tmp_path, postgresql, small, call):
    import mlflow

    store = f"{postgresql}/mlflow"
    with mlflow_server(tmp_path, store=store) as address:
        subprocess.run(train_command(tmp_path, "first", address, 0), check=True, capture_output=True)
        worse = train_small(tmp_path / "w", replace(SMALL_RECIPE, trees=1, min_samples_leaf=30)).save(tmp_path / "wz")
        assert register(worse, address).version == "2"
        assert not promote(MODEL, uri=address).promoted
        assert promote(MODEL, uri=address, force=True).promoted
        assert promote(MODEL, "1", uri=address).promoted
        before = predicted(address)
        expected = chip_alone(small.predictor).predict(simulated_operations()[:5]).energy_j
        assert before == pytest.approx(expected.tolist(), rel=1e-4)

    environment = {**os.environ, "STORE": store, "ARTIFACTS": str(tmp_path / "artifacts")}
    backup = [sys.executable, str(ROOM / "backup.py")]
    subprocess.run([*backup, "save", str(tmp_path / "saved")], env=environment, check=True)
    environment |= {"STORE": f"{postgresql}/restored", "ARTIFACTS": str(tmp_path / "restored" / "artifacts")}
    (tmp_path / "restored").mkdir()
    subprocess.run([*backup, "restore", str(tmp_path / "saved")], env=environment, check=True)
    with mlflow_server(tmp_path / "restored", store=environment["STORE"]) as address:
        assert predicted(address) == before
        assert mlflow.MlflowClient(address).get_model_version(MODEL, "1").tags[ENTRY_SHA256]


def test_migration_from_sqlite_to_postgresql(tmp_path, postgresql, small_entry):
    import mlflow

    here = f"sqlite:///{tmp_path / 'mlflow.db'}"
    subprocess.run(train_command(tmp_path, "first", here, 0), check=True, capture_output=True)
    before = predicted(here)
    there = f"{postgresql}/mlflow"
    move = [sys.executable, str(ROOM / "migrate.py"), here, there, "--artifacts", str(tmp_path / "mlartifacts")]
    (tmp_path / "server").mkdir()
    move += ["--to", str(tmp_path / "server" / "artifacts")]
    subprocess.run(move, check=True)
    again = subprocess.run(move, capture_output=True, text=True, check=False)
    assert "is not empty" in again.stderr
    shutil.rmtree(tmp_path / "mlartifacts")
    with mlflow_server(tmp_path / "server", store=there) as address:
        assert predicted(address) == before
        # Version numbers continue.
        worse = train_small(tmp_path / "w", replace(SMALL_RECIPE, trees=2)).save(tmp_path / "wz")
        assert register(worse, address).version == "2"
        client = mlflow.MlflowClient(address)
        runs = client.search_runs([client.get_experiment_by_name("joulecast").experiment_id])
        assert {run.data.tags["stage"] for run in runs} == {"train", "register"}


def test_a_login(tmp_path, small_entry, monkeypatch):
    pytest.importorskip("flask_wtf")
    port = free_port()
    environment = {**os.environ, "ROOT": str(tmp_path), "PORT": str(port), "HOST": "127.0.0.1"}
    environment |= {"ADMIN_PASSWORD": "a-long-password", "MLFLOW_FLASK_SERVER_SECRET_KEY": "secret"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            ["/bin/sh", str(ROOM / "serve.sh")], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        address = address_of(server, port, tmp_path / "log")
        for user, password in ((None, None), ("admin", "wrong"), ("nobody", "a-long-password")):
            for name, value in (("MLFLOW_TRACKING_USERNAME", user), ("MLFLOW_TRACKING_PASSWORD", password)):
                monkeypatch.delenv(name, raising=False)
                if value:
                    monkeypatch.setenv(name, value)
            with pytest.raises(TrackingError, match="denied access") as caught:
                register(small_entry, address)
            assert "MLFLOW_TRACKING_PASSWORD" in str(caught.value)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a-long-password")
        assert register(small_entry, address).version == "1"
        assert len(predicted(address)) == 5
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


CLIENT = """
import sys, mlflow
from joulecast.zoo.mlflow import registry
from joulecast.cli import main
print("begins", flush=True)
sys.exit(main(["zoo", "push", sys.argv[1], "models:/", "--tracking-uri", sys.argv[2]]))
"""


def test_a_server_killed_while_registering(tmp_path, monkeypatch):
    """Nothing is lost or half registered, and the same command completes the registration."""
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = tmp_path / "server"
    folder.mkdir()
    with mlflow_server(folder) as address:
        first = train_small(tmp_path / "first").save(tmp_path / "zoo-first")
        register(first, address)
        began = time.monotonic()
        register(train_small(tmp_path / "second", replace(SMALL_RECIPE, seed=1)).save(tmp_path / "zoo-second"), address)
        whole_s = time.monotonic() - began
    killed = 0
    for number in range(4):
        entry = train_small(tmp_path / f"n{number}", replace(SMALL_RECIPE, seed=2 + number)).save(
            tmp_path / f"z{number}"
        )
        with contextlib.ExitStack() as client_ends:
            with mlflow_server(folder) as address:
                command = [sys.executable, "-c", CLIENT, str(entry), address]
                pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
                client = client_ends.enter_context(started(command, **pipes))
                client.stdout.readline()
                # The moment of the kill: from about the first request to about the last.
                time.sleep((number + 0.5) * whole_s / 4)
                running = client.poll() is None
            # The server is gone; the client ends with an error, or had just finished.
            said = client.communicate(timeout=600)[1].decode()
        assert client.returncode == 0 or ("MLflow" in said and "next:" in said and "Traceback" not in said), said
        killed += running and client.returncode != 0
        with mlflow_server(folder) as address:
            api = mlflow.MlflowClient(address)
            assert api.get_model_version_by_alias(MODEL, "champion").version == "1"
            assert StoredEntry.of(registry_folder(CHAMPION, address)).sha256 == StoredEntry.of(first).sha256
            for version in api.search_model_versions(f"name = '{MODEL}'"):
                folder_of = registry_folder(f"models:/{MODEL}/{version.version}", address)
                assert StoredEntry.of(folder_of).sha256 == version.tags[ENTRY_SHA256]
            completed = register(entry, address)
            assert api.get_model_version_by_alias(MODEL, "challenger").version == completed.version
            digests = [v.tags[ENTRY_SHA256] for v in api.search_model_versions(f"name = '{MODEL}'")]
            assert len(digests) == len(set(digests)) == 3 + number
    assert killed >= 1, "no registration was hit: choose other times"
