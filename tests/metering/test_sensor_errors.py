"""Errors of GPUs' sensors, and energies corrected for them, by hand."""

import numpy as np
import pytest

from joulecast.metering.recording import DeviceInfo, Recording
from joulecast.metering.result import Metering
from joulecast.metering.samples import Samples


def metering(name, counter=True):
    time_s = np.arange(0, 2.1, 0.1)
    readings = {"energy_j": 200 * time_s} if counter else {"power_w": np.full(len(time_s), 200.0)}
    device = DeviceInfo("gpu0", "board", facts={"device": name})
    recording = Recording("here", "", 0, 2, (device,), {"gpu0": Samples.of(time_s, **readings)})
    return Metering("program", (recording,))


def test_a_measurement_keeps_what_was_read_and_says_what_is_known_of_its_sensor():
    found = metering("NVIDIA A100-PCIE-40GB")
    (device,) = found.devices
    assert device.energy_j == pytest.approx(400)
    # 400 J in 2 s on an A100 that reports 0.954 x metered - 1.2 W: (400 + 2.4) / 0.954
    assert device.corrected_j == pytest.approx(421.8, abs=0.1)
    assert any("422 J +- 1.5 % by a meter" in note for note in found.notes)
    assert metering("NVIDIA H200").devices[0].corrected_j is None
    for name, counter, says in (
        ("NVIDIA A30", False, "25 of every 100 ms"),
        ("NVIDIA L4", False, "average 1000 ms"),
        ("NVIDIA L4", True, "not compared with a meter"),
    ):
        assert any(says in note for note in metering(name, counter).notes)
    assert not any("of every" in note for note in metering("NVIDIA A30").notes)  # A counter misses no time.
    assert metering("AMD Instinct MI210").notes == ()  # Nothing is known of sensors of another maker.
