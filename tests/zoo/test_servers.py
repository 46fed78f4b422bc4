"""Servers as teams run them: PostgreSQL, a login, migration, backup and restore, kills. Run by `pytest -m slow`."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow_servers import address_of, frame, mlflow_server
from processes import free_port
from simulated_measurements import simulated_dataset, simulated_operations

from conftest import SMALL_RECIPE, needs, train_small
from joulecast.datasets import save
from joulecast.errors import TrackingError
from joulecast.zoo.promotion import promote
from joulecast.zoo.registry import ENTRY_SHA256, register

pytestmark = [
    needs("mlflow"),
    pytest.mark.slow,
    pytest.mark.usefixtures("fresh_cache"),
    pytest.mark.filterwarnings("ignore"),
]

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


def test_postgresql_from_training_to_prediction_and_back_from_a_backup(tmp_path, postgresql, small, call):
    import mlflow

    store = f"{postgresql}/mlflow"
    with mlflow_server(tmp_path, store=store) as address:
        subprocess.run(train_command(tmp_path, "first", address, 0), check=True, capture_output=True)
        worse = train_small(tmp_path / "w", replace(SMALL_RECIPE, trees=1, min_samples_leaf=30)).save(tmp_path / "wz")
        assert register(worse, address).version == "2"
        assert not promote(MODEL, uri=address)[0]
        assert promote(MODEL, uri=address, force=True)[0]
        assert promote(MODEL, "1", uri=address)[0]
        before = predicted(address)
        expected = small.predictor.operations.predict(simulated_operations()[:5]).energy_j
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
