"""Joules of counters among events: units, clocks, devices, and unknown power."""

import numpy as np
import pytest

from joulecast.accounting import Events, Place
from joulecast.accounting.account import one_pass
from joulecast.accounting.shares import counters_of, figure_of, resolution, spread, swept
from joulecast.energy import EnergyTree
from joulecast.errors import InputError
from joulecast.metering.energy_curve import EnergyCurve
from joulecast.metering.recording import DeviceInfo, Recording
from joulecast.metering.samples import Samples

A, B = Place("a", "forward", "aten::mm"), Place("b", "backward", "MmBackward0")
PACKAGE, MEMORY, GPU = (
    DeviceInfo("cpu0", "package"),
    DeviceInfo("ram", "dram", method="modelled"),
    DeviceInfo("gpu0", "board"),
)


def recording(*, wall_offset_s=0.0, power_w=((PACKAGE, 50.0),), start_s=-1.0, end_s=21.0):
    """Steady power of each device, as counters that update every 10 ms of the machine's monotonic clock."""
    time_s = np.arange(start_s, end_s, 0.01)
    samples = {device.name: Samples.of(time_s, energy_j=1000 + watts * (time_s - start_s)) for device, watts in power_w}
    return Recording(
        "here", "", start_s, end_s, tuple(device for device, _ in power_w), samples, wall_offset_s=wall_offset_s
    )


EVENTS = Events.of([(0, 4, A, "cpu"), (4, 6, B, "cpu")], windows=[(0, 5), (5, 10)])


def counted(device, joules, known=True):
    return device, figure_of(device, joules, known)


def by_place(shares):
    return {(row.path, row.operation): row.share for row in shares.rows}


def test_one_pass_gives_what_the_counter_saw():
    shares = swept(EVENTS, counters_of(recording(), 0))
    found = by_place(shares)
    assert found["a", "aten::mm"].energy["cpu0", "package"].value == pytest.approx(200, rel=1e-6)
    assert found["b", "MmBackward0"].energy["cpu0", "package"].value == pytest.approx(100, rel=1e-6)
    assert shares.unattributed.energy_j == pytest.approx(200, rel=1e-6)
    assert shares.unattributed.time_s == pytest.approx(4)
    assert shares.notes == ()
    # What another counter contains does not count twice.
    cores = DeviceInfo("cpu0.core", "core", counted=False)
    both = swept(EVENTS, counters_of(recording(power_w=[(PACKAGE, 50.0), (cores, 30.0)]), 0))
    assert by_place(both)["a", "aten::mm"].energy_j == pytest.approx(200, rel=1e-6)
    # The trace counts from the wall-clock time of its origin; samples count from the start of the machine.
    started_s, boot_s = 1_790_000_000.0, 1_789_990_000.0
    shifted = recording(wall_offset_s=boot_s, start_s=9_999.0, end_s=10_021.0)
    counters = counters_of(shifted, int(started_s * 1e9))
    assert by_place(swept(EVENTS, counters))["a", "aten::mm"].energy_j == pytest.approx(200, rel=1e-6)


def test_a_gpu_pays_for_its_kernels_and_all_other_counters_for_the_host():
    events = Events.of([(0, 4, A, "cpu"), (1, 8, A, "gpu0"), (8, 9, A, "gpu0")], windows=[(0, 10)])
    power_w = [(PACKAGE, 50.0), (MEMORY, 5.0), (GPU, 300.0)]
    shares = swept(events, counters_of(recording(power_w=power_w), 0))
    energy = by_place(shares)["a", "aten::mm"].energy
    expected = {("cpu0", "package"): 200, ("ram", "dram"): 20, ("gpu0", "board"): 2400}
    assert {part: figure.value for part, figure in energy.items()} == pytest.approx(expected, rel=1e-6)
    assert energy["ram", "dram"].source == "modelled"
    assert [row.calls for row in shares.rows] == [1]  # of the operator, and not of its kernels
    without_kernels = swept(EVENTS, counters_of(recording(power_w=[(GPU, 30.0)]), 0))
    assert without_kernels.unattributed.energy["gpu0", "board"].value == pytest.approx(300, rel=1e-6)
    assert by_place(without_kernels)["a", "aten::mm"].source == "missing"


def test_what_a_recording_did_not_see_are_unknown_joules():
    early = one_pass("model", EVENTS, recording(end_s=5))
    assert any("the power is unknown" in note for note in early.notes)
    assert early.tree().at("b", "backward").total.unknown == 1
    assert early.resolution.iteration_s == 5  # of two, in 10 s
    assert early.energy_j == pytest.approx(250, rel=0.01)
    single = Recording("here", "", 0, 1, (PACKAGE,), {"cpu0": Samples.of(np.array([3.0]), energy_j=np.array([7.0]))})
    found = one_pass("model", EVENTS, single)  # steps that are shorter than a sample
    assert not found.measured
    assert any("the power is unknown in 10 s" in note for note in found.notes)


def test_without_a_counter_there_are_seconds_and_the_answer_says_so():
    found = one_pass("model", EVENTS, None)
    assert not found.measured
    assert found.energy_j is None
    assert "no energy counter" in found.notes[0]
    assert found.tree().at("a", "forward").total.time_s == 4
    assert "joules not measured" in str(found)
    assert [node.name for node in found.top(1)] == ["aten::mm"]
    with pytest.raises(InputError, match="no joules were measured"):
        found.compare(EnergyTree.of("prediction", []))


def test_two_passes_spread_the_joules_of_an_undisturbed_iteration():
    # profiled: 3 busy seconds of 5 in each of two iterations; undisturbed: 4 s and 80 J, so that 1 s is idle
    shares = spread(EVENTS, 4.0, [counted(PACKAGE, 80.0)])
    found = by_place(shares)
    assert (found["a", "aten::mm"].energy_j, found["a", "aten::mm"].time_s) == pytest.approx((40, 2))
    assert found["b", "MmBackward0"].energy_j == pytest.approx(20)
    assert {row.calls for row in shares.rows} == {0.5}  # It ran once in two iterations.
    assert shares.unattributed.energy_j == pytest.approx(20)
    # Operators that the profiler slowed down fill the iteration at most, and an incomplete counter stays incomplete.
    slowed = spread(EVENTS, 1.5, [counted(PACKAGE, 60.0, known=False)])
    assert sum(row.share.energy_j for row in slowed.rows) == pytest.approx(60)
    assert slowed.unattributed.energy_j == pytest.approx(0, abs=1e-12)
    assert all(row.share.unknown == 1 for row in slowed.rows)
    # Every joule is accounted; those of a GPU without a kernel belong to nothing.
    events = Events.of([(0, 4, A, "cpu"), (1, 3, B, "gpu0"), (4.5, 5, B, "cpu")], windows=[(0, 5)])
    joules = ((PACKAGE, 80.0), (MEMORY, 8.0), (GPU, 500.0), (DeviceInfo("gpu1", "board"), 30.0))
    shares = spread(events, 4.8, [counted(*each) for each in joules])
    total = sum(row.share.energy_j for row in shares.rows) + shares.unattributed.energy_j
    assert total == pytest.approx(618, rel=1e-12)
    assert shares.unattributed.energy["gpu1", "board"].value == 30


def test_the_slowest_sensor_says_what_is_resolved():
    events = Events.of([(0, 0.05, A, "cpu"), (0.05, 0.25, B, "cpu")])
    spaced = [EnergyCurve(times, times, 0 * times) for times in (np.arange(0, 1, 0.1), np.arange(0, 1, 0.01))]
    found = resolution(events, spaced, 0.25)
    assert found.update_s == pytest.approx(0.1)
    assert found.resolved_share == pytest.approx(0.8)
    assert resolution(events, (), 0.25).update_s is None
