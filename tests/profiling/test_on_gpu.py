"""Collecting on a real GPU: `pytest -m gpu`. Clocks are left alone."""

import time

import pytest
import torch
from test_timing import example

from joulecast.datasets import load
from joulecast.metering import estimate
from joulecast.profiling import devices
from joulecast.profiling.command import collect
from joulecast.profiling.runners import RUNNERS
from joulecast.profiling.timing import time_operation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"),
]
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("kind", RUNNERS)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_every_kind_is_timed_with_and_without_the_host(kind, mode):
    timing = time_operation(example(kind, mode), CUDA, seconds=0.1)
    assert timing.device_time_s is not None, timing.warnings
    assert 0 < timing.device_time_s < 1.1 * timing.time_s


def busy(seconds):
    a, end_s = torch.randn(4096, 4096, device=CUDA), time.monotonic() + seconds
    while time.monotonic() < end_s:
        torch.mm(a, a)
        torch.cuda.synchronize()


def test_power_rises_under_load():
    with devices.sensor_of(CUDA) as sensor:
        found = []
        for run in (time.sleep, busy):
            start_s = time.monotonic()
            run(4.0)
            end_s = time.monotonic()
            found.append(estimate(sensor.window(start_s, end_s), start_s, end_s))
    idle, loaded = found
    assert loaded.power_w > 1.5 * idle.power_w
    assert loaded.clock_mhz > 0


def test_a_campaign_becomes_a_dataset_with_power(tmp_path):
    network = ["--network", "squeezenet1_1", "32,3,224,224", "--whole-networks", "--limit", "5"]
    collect([*network, "--seconds", "3", "--mode", "inference", "--mode", "training", "--out", str(tmp_path)])
    dataset = load(tmp_path)
    assert len(dataset.measurements) == 3
    assert {network.mode for network in dataset.networks} == {"inference", "training"}
    assert all(m.power_w > 0 and m.device_time_s > 0 and m.clock_mhz > 0 for m in dataset.measurements)
