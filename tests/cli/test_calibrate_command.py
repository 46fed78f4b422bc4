"""`joulecast calibrate`: what it writes from measurements, and what it says where there is no GPU."""

from __future__ import annotations

import json

import pytest
from simulated_board import measured, operations

from joulecast.datasets import save
from joulecast.hardware import find_gpu
from joulecast.zoo import find_predictor

GPU = find_gpu("H100 SXM")


@pytest.fixture
def dataset(tmp_path):
    found = find_predictor(GPU, "inference").operations
    return save(measured(found, operations()[::2], GPU), tmp_path / "measured")


def test_measurements_become_a_file_that_predictions_take(dataset, tmp_path, call):
    path = tmp_path / "mine.json"
    code, out, said = call("calibrate", "--measured", str(dataset), "--out", str(path))
    assert code == 0, said
    assert "products on tensor cores" in out
    assert "on operations left out" in out
    asked = ["linear", "4096,4096", "--set", "out_features=4096", "--precision", "bf16", "--gpu", "H100 SXM", "--json"]
    plain, found = (json.loads(call("explain", *asked, *more)[1]) for more in ([], ["--calibration", str(path)]))
    factor = found["calibration"]["products on tensor cores"]
    assert factor == pytest.approx(1.25, rel=0.05)
    assert found["device_time_s"] == pytest.approx(factor * plain["device_time_s"], rel=0.1)
    assert plain["calibration"] is None


def test_without_a_gpu_it_says_what_it_needs(call, tmp_path):
    code, _, said = call("calibrate", "--out", str(tmp_path / "mine.json"))
    assert code == 2
    assert all(part in said for part in ("there is none here", "given:", "allowed:", "next:", "--measured"))
    assert not list(tmp_path.iterdir())
