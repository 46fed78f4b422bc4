"""End to end: a model runs while a real sampler reads simulated counters."""

import threading

import pytest
from simulated_counters import simulate_zones

torch = pytest.importorskip("torch")

import joulecast  # noqa: E402

PACKAGE_W, MEMORY_W = 50.0, 8.0
ERROR = 0.01


@pytest.fixture
def counters(preloaded, tmp_path, monkeypatch):
    """A package of 50 W and memory of 8 W."""
    zones = {"intel-rapl:0": ("package-0", "50 W"), "intel-rapl:0:0": ("dram", "8 W")}
    simulate_zones(tmp_path / "powercap", zones)
    monkeypatch.setenv("JOULECAST_POWERCAP", str(tmp_path / "powercap"))
    monkeypatch.setenv("LD_PRELOAD", str(preloaded))


def model():
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))


def test_an_iteration_takes_the_joules_of_its_seconds(counters):
    found = joulecast.account(model(), (512, 256), mode="training", loop_s=0.6, sensors=("cpu", "ram"))
    assert found.measured
    assert found.energy_j == pytest.approx((PACKAGE_W + MEMORY_W) * found.duration_s, rel=ERROR)
    assert found.tree().total.energy_j == pytest.approx(found.energy_j, rel=1e-9)
    assert {part for row in found.rows for part in row.share.energy} == {("cpu0", "package"), ("ram0", "dram")}
    assert found.tree().at("0", "backward").total.energy_j > 0
    assert "undisturbed loop" in found.basis
    assert "the sensor updates every" in str(found.resolution)
    assert found.resolution.iteration_s == found.duration_s
    marked_s = sum(end - start for start, end in found.events.windows) / found.iterations
    assert found.overhead == pytest.approx(marked_s / found.duration_s - 1)
    assert found.compare(found.tree()).mean_difference_j == 0


def test_steps_of_the_user_take_the_joules_of_their_seconds(counters):
    trained = model()
    with joulecast.account(trained, sensors=("cpu",)) as running:
        for _ in range(20):
            trained(torch.randn(512, 256)).sum().backward()
            threading.Event().wait(0.02)
    found = running.result()
    assert found.energy_j == pytest.approx(PACKAGE_W * found.duration_s, rel=ERROR)
    assert found.unattributed.energy_j > 0.4 * PACKAGE_W * 0.4  # most of 20 pauses of 20 ms
