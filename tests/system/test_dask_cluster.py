"""Calls on the workers of a Dask cluster give what they give here; clusters that cannot be used are refused."""

import os
from dataclasses import replace

import numpy as np
import pytest

import joulecast
from joulecast import Operation
from joulecast.datasets import save
from joulecast.errors import InputError
from joulecast.extraction import network_of
from joulecast.predictors.evaluation.one_gpu import search, validate
from joulecast.predictors.recipes import ForestRecipe, XGBoostRecipe
from joulecast.system import cluster
from joulecast.system.cluster import call_on_workers, connect, is_used, on_cluster

distributed = pytest.importorskip("distributed", reason="a cluster needs joulecast[cluster]")
pytest.importorskip("joblib", reason="a cluster needs joulecast[cluster]")

CANDIDATES = [[(Operation("linear", [(8, 64 * n)], {"out_features": 32}), n)] for n in range(1, 6)]


@pytest.fixture(scope="module")
def workers():
    """The address of a cluster of one worker, a thread of this process."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as local:
        yield local.scheduler_address


@pytest.fixture(scope="module")
def processes():
    """The address of a cluster of two workers, each a process."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local:
        yield local.scheduler_address


def test_results_come_in_the_order_of_the_calls_and_errors_come_back(workers):
    assert not is_used()
    with on_cluster(workers):
        assert is_used()
        assert list(call_on_workers(divmod, [(7, 2), (9, 4), (1, 3)])) == [(3, 1), (2, 1), (0, 1)]
        with pytest.raises(ZeroDivisionError):
            list(call_on_workers(divmod, [(7, 2), (1, 0)]))
    assert not is_used()


def same(found, expected):
    assert found.names == expected.names
    assert found.problems == expected.problems
    for name in ("time_s", "energy_j", "device_time_s", "host_time_s", "held_clock_mhz", "uncovered_share"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_many_networks_are_predicted_as_they_are_here(workers, monkeypatch):
    monkeypatch.setattr("joulecast.predictors.networks.many._AT_ONCE", 2)  # so that there are several calls
    options = {"gpu": "A30", "clock": 900, "host": 0.5}
    expected = joulecast.predict_many(CANDIDATES, **options)
    assert len(expected) == 5
    same(joulecast.predict_many(iter(CANDIDATES), **options, cluster=workers), expected)
    assert len(joulecast.predict_many([], **options, cluster=workers)) == 0


def test_unusable_clusters_are_refused(workers, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.1)
    with pytest.raises(InputError, match="no Dask scheduler answers") as caught:
        joulecast.predict_many(CANDIDATES, "A30", cluster="tcp://127.0.0.1:1")
    assert caught.value.given == "tcp://127.0.0.1:1"
    with pytest.raises(InputError, match="TLS needs the certificates") as caught:
        connect("tls://127.0.0.1:1")
    assert "DASK_CONFIG" in caught.value.hint
    monkeypatch.setattr(cluster, "_CONNECT_S", 10.0)
    monkeypatch.setattr(cluster, "_version", lambda: "0.0.1")
    with pytest.raises(InputError, match="another version") as caught, on_cluster(workers):
        pass
    assert (caught.value.given, caught.value.allowed) == ("0.0.1", joulecast.__version__)


@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_the_command_line_fits_on_the_cluster_that_is_named(command, call, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.1)
    save(dataset, tmp_path)
    code, _, errors = call(command, "--dataset", tmp_path, "--recipe", "forest", "--cluster", "tcp://127.0.0.1:1")
    assert code == InputError.exit_code
    assert "no Dask scheduler answers at this address" in errors


@pytest.mark.slow
def test_a_cluster_without_workers_is_refused(monkeypatch):
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as empty:
        monkeypatch.setattr(cluster, "_CONNECT_S", 1.0)
        with pytest.raises(InputError, match="this cluster has no workers"), on_cluster(empty.scheduler_address):
            pass


@pytest.mark.slow
def test_evaluation_and_tuning_give_what_they_give_here(processes, dataset, monkeypatch):
    called = []

    def recorded(function, calls):
        called.append(function.__name__)
        return call_on_workers(function, calls)

    monkeypatch.setattr(cluster, "call_on_workers", recorded)
    more = [replace(m, network="vgg11", time_s=2 * m.time_s, energy_j=2 * m.energy_j) for m in dataset.networks]
    data = replace(dataset, networks=(*dataset.networks, *more))
    networks = {m: network_of(m.network, m.input_shape, precision=m.precision) for m in data.networks}
    forest, trees = ForestRecipe(trees=10, folds=4), XGBoostRecipe(trees=20, search={"depth": [2, 4, 6]})

    def found():
        trials = search(data, "inference", trees, 3)
        return validate(data, "inference", forest, networks).metrics(), [(t.settings, t.metrics) for t in trials]

    errors, trials = found()
    assert not called
    with on_cluster(processes):
        assert os.getpid() not in call_on_workers(os.getpid, [()] * 3)
        errors_there, trials_there = found()
    assert errors_there == pytest.approx(errors, rel=0, abs=0, nan_ok=True)
    assert trials_there == trials
    assert len(trials) > 1
    assert called == ["_errors_without"] * 5 + ["_trial"]  # a campaign, networks by name and family, folds, kinds
