"""Locking clocks on the simulated driver, whose lock outlives the process as a real one's does."""

import pytest

from joulecast.errors import ClockError, SensorError

pytest.importorskip("torch")
from joulecast.profiling.devices import Clocks

CRASH = """
import os
from joulecast.profiling.devices import Clocks
with Clocks(0).locked(900):
    os._exit(1)
"""


@pytest.fixture
def clock(beside_driver, tmp_path, monkeypatch):
    """What the driver holds, in MHz; 0 after a reset, None before it was told anything."""
    for name, value in beside_driver().items():
        monkeypatch.setenv(name, value)
    return lambda: (tmp_path / "clock").read_text() if (tmp_path / "clock").exists() else None


def hold(clock, clocks):
    """Lock a clock for a moment."""
    with clocks.locked(900):
        assert clock() == "900"
    assert clock() == "0"


def test_a_clock_is_locked_and_reset(clock, tmp_path):
    clocks = Clocks(0)
    assert not clocks.restore()
    clocks.check(900)
    hold(clock, clocks)
    with pytest.raises(SystemExit), clocks.locked(900):
        raise SystemExit("stopped")
    assert clock() == "0"
    assert not list((tmp_path / "state" / "joulecast").iterdir())


def test_without_nvidia_smi_no_clock_is_locked(clock, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SensorError, match="nvidia-smi is not installed"):
        Clocks(0)
    assert clock() is None


def test_two_campaigns_on_one_gpu_refuse_each_other(clock):
    with pytest.raises(ClockError, match="another campaign holds this GPU's clock"), Clocks(0).locked(900):
        Clocks(0).restore()
    assert clock() == "0"


def test_without_permission_the_command_is_named(clock, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_MAY_LOCK", "0")
    with pytest.raises(ClockError, match="the clock cannot be locked at 900 MHz") as caught, Clocks(0).locked(900):
        pass
    assert "sudo nvidia-smi --id=0 --lock-gpu-clocks=900,900" in str(caught.value)
    # Nothing was locked, so nothing is left to be restored.
    assert not Clocks(0).restore()


def test_after_a_crash_each_start_tries_to_reset_the_clock(on_driver, clock, monkeypatch):
    assert on_driver(CRASH).returncode == 1
    assert clock() == "900"
    monkeypatch.setenv("FAKE_NVML_MAY_LOCK", "0")
    with pytest.raises(ClockError, match="the clock cannot be reset") as caught:
        Clocks(0).restore()
    monkeypatch.delenv("FAKE_NVML_MAY_LOCK")
    assert "--reset-gpu-clocks" in str(caught.value)
    assert Clocks(0).restore()
    hold(clock, Clocks(0))


def test_clocks_that_the_gpu_does_not_have(clock):
    with pytest.raises(ClockError, match="210 to 1410 MHz; nearest: 870, 885, 900, 915, 930"):
        Clocks(0).check(907)
