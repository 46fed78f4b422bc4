"""Energy and static power against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.energy import (
    EnergyConstants,
    process_factor,
    static_power_w,
)
from joulecast.predictors.physics.voltage import relative_voltage

LINEAR = Operation("linear", [(100, 1000)], {"out_features": 200, "bias": False})
FLOPS = 2 * 100 * 1000 * 200
BYTES = 4 * (100 * 1000 + 200 * 1000 + 100 * 200)
CONSTANTS = EnergyConstants(
    fp32_j_per_flop=1e-11,
    tensor_j_per_flop=2e-12,
    hbm_j_per_byte=5e-11,
    gddr_j_per_byte=1e-10,
    awake_w_per_sm_ghz=0.5,
)
SECONDS = 1e-3


def energy_j(operation, gpu, clock_mhz):
    return CONSTANTS.dynamic_energy_j([operation], np.array([SECONDS]), gpu, clock_mhz)[0]


@pytest.mark.parametrize(("clock", "volts"), [(500, 0.8), (1000, 0.8), (1500, 0.9), (2000, 1.0), (2500, 1.1)])
def test_voltage_over_that_at_the_boost_clock(clock, volts):
    assert relative_voltage(ROUND, clock) == pytest.approx([volts])


def test_voltage_is_the_a100s_where_none_is_known_at_the_same_share_of_the_boost_clock():
    """A100: 694 mV up to about 1035 MHz, 894 mV at its boost clock of 1410 MHz (energaizer2026)."""
    unknown = replace(ROUND, voltage=None)
    assert relative_voltage(unknown, np.array([2000.0, 1000.0])) == pytest.approx([1.0, 694 / 894], rel=0.01)
    assert relative_voltage(unknown, 1000.0) == pytest.approx(relative_voltage(find_gpu("A100 PCIe 40GB"), 705.0))


def test_energy_at_the_boost_clock_is_the_sum_of_its_parts():
    """10 SMs at 2 GHz for a millisecond, 0.5 W each per GHz."""
    expected = FLOPS * 1e-11 + BYTES * 5e-11 + 0.5 * 10 * 2.0 * SECONDS
    assert energy_j(LINEAR, ROUND, 2000.0) == pytest.approx(expected)


def test_logic_scales_with_the_square_of_the_voltage_and_memory_does_not():
    """At 1500 MHz the voltage is 0.9 of that at the boost clock: 0.81 of the energy, and SMs clock 1.5 GHz."""
    expected = 0.81 * (FLOPS * 1e-11 + 0.5 * 10 * 1.5 * SECONDS) + BYTES * 5e-11
    assert energy_j(LINEAR, ROUND, 1500.0) == pytest.approx(expected)


def test_a_byte_of_gddr_costs_twice_as_much_as_one_of_hbm_here():
    gddr = replace(ROUND, memory_type="GDDR6")
    assert energy_j(LINEAR, gddr, 2000.0) - energy_j(LINEAR, ROUND, 2000.0) == pytest.approx(BYTES * 5e-11)


@pytest.mark.parametrize(
    ("precision", "joules"),
    [
        ("fp32", FLOPS * 1e-11 + BYTES * 5e-11),
        # TF32 multiplies numbers of twice the width.
        ("tf32", 2 * FLOPS * 2e-12 + BYTES * 5e-11),
        ("bf16", FLOPS * 2e-12 + BYTES / 2 * 5e-11),
    ],
)
def test_tensor_cores_cost_less_for_each_flop(precision, joules):
    expected = joules + 0.5 * 10 * 2.0 * SECONDS
    assert energy_j(LINEAR.replace(precision=precision), ROUND, 2000.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("process", "factor"),
    [
        *[("TSMC 16 nm", 2.2), ("TSMC 12FFN", 1.8), ("Samsung 8N", 1.5), ("TSMC 7N", 1.0), ("TSMC 4N", 0.75)],
        *[(None, 1.0), ("unknown", 1.0), ("TSMC 99", 1.0)],
    ],
)
def test_older_processes_cost_more(process, factor):
    gpu = replace(ROUND, process=process)
    assert process_factor(gpu) == factor
    dynamic = factor * (FLOPS * 1e-11 + 0.5 * 10 * 2.0 * SECONDS) + BYTES * 5e-11
    assert energy_j(LINEAR, gpu, 2000.0) == pytest.approx(dynamic)


@pytest.mark.parametrize(("clock", "watts"), [(300, 20.0), (500, 20.0), (1500, 40.0), (2000, 50.0), (2500, 50.0)])
def test_static_power_is_the_measured_curve(clock, watts):
    assert static_power_w(ROUND, clock) == pytest.approx(watts)
    assert static_power_w(ROUND, np.array([clock, clock])) == pytest.approx([watts, watts])


def test_a_board_with_a_context_draws_no_less_than_without():
    cold = replace(ROUND, idle_power_w=30.0)
    assert static_power_w(cold, np.array([500.0, 2000.0])) == pytest.approx([30.0, 50.0])


def test_static_power_where_no_curve_is_known():
    """0.18 of a cap of 200 W, at most 80 W, at least what the board draws with no process on it."""
    unknown = replace(ROUND, idle_curve=None)
    assert static_power_w(unknown, 2000.0) == pytest.approx(36.0)
    assert static_power_w(replace(unknown, power_limit_w=1000.0), 2000.0) == pytest.approx(80.0)
    assert static_power_w(replace(unknown, idle_power_w=60.0), 2000.0) == pytest.approx(60.0)
    assert static_power_w(replace(unknown, idle_power_w=None), 2000.0) == pytest.approx(36.0)
    # At lower clocks it falls as the A100's does, which is 55 to 65 W; but not below the board without a process.
    low = float(static_power_w(unknown, 500.0))
    a100 = find_gpu("A100 PCIe 40GB").idle_curve
    assert low == pytest.approx(36.0 * a100.at(0.25 * 1410) / a100.at(1410.0))
    assert static_power_w(replace(unknown, idle_power_w=35.5), 500.0) == pytest.approx(35.5)


def test_constants_survive_json():
    assert EnergyConstants.from_dict(CONSTANTS.to_dict()) == CONSTANTS
    assert CONSTANTS.to_dict()["gddr_j_per_byte"] == 1e-10
