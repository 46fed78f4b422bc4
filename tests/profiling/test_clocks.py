"""Locking clocks on the simulated driver, whose lock outlives the process as a real one's does."""

LOCK = """
import os, sys
from joulecast.profiling.devices import Clocks
clocks = Clocks(0)
print("restored", clocks.restore())
clocks.check(900)
with clocks.locked(900):
    print("held", open(os.environ["FAKE_NVML_CLOCK_FILE"]).read(), flush=True)
    if "crash" in sys.argv:
        os._exit(1)
    if "raise" in sys.argv:
        raise SystemExit("stopped")
    if "twice" in sys.argv:
        Clocks(0).restore()
print("then", open(os.environ["FAKE_NVML_CLOCK_FILE"]).read())
"""


def clock(tmp_path):
    return (tmp_path / "clock").read_text()


def test_a_clock_is_locked_and_reset(on_driver, tmp_path):
    assert on_driver(LOCK).stdout.splitlines() == ["restored False", "held 900", "then 0"]
    on_driver(LOCK, "raise")
    assert clock(tmp_path) == "0"
    assert not list((tmp_path / "state" / "joulecast").iterdir())


def test_without_nvidia_smi_no_clock_is_locked(on_driver, tmp_path):
    assert "nvidia-smi is not installed" in on_driver(LOCK, smi=False).stderr
    assert not (tmp_path / "clock").exists()


def test_two_campaigns_on_one_gpu_refuse_each_other(on_driver, tmp_path):
    result = on_driver(LOCK, "twice")
    assert "another campaign holds this GPU's clock" in result.stderr
    assert clock(tmp_path) == "0"


def test_without_permission_the_command_is_named(on_driver, tmp_path):
    result = on_driver(LOCK, FAKE_NVML_MAY_LOCK=0)
    assert "ClockError: the clock cannot be locked at 900 MHz" in result.stderr
    assert "sudo nvidia-smi --id=0 --lock-gpu-clocks=900,900" in result.stderr
    # Nothing was locked, so nothing is left to be restored.
    assert on_driver(LOCK).stdout.startswith("restored False")


def test_after_a_crash_each_start_tries_to_reset_the_clock(on_driver, tmp_path):
    on_driver(LOCK, "crash")
    assert clock(tmp_path) == "900"
    result = on_driver(LOCK, FAKE_NVML_MAY_LOCK=0)
    assert "the clock cannot be reset" in result.stderr
    assert "--reset-gpu-clocks" in result.stderr
    assert on_driver(LOCK).stdout.splitlines() == ["restored True", "held 900", "then 0"]


def test_clocks_that_the_gpu_does_not_have(on_driver):
    result = on_driver(LOCK.replace("check(900)", "check(907)"))
    assert "210 to 1410 MHz; nearest: 870, 885, 900, 915, 930" in result.stderr
