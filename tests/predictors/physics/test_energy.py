"""Energy, static power and voltage against arithmetic by hand."""

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.hardware import Boards, find_gpu
from joulecast.hardware.gpu import IdleCurve
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import (
    EnergyConstants,
    process_factor,
    relative_voltage,
    static_power_w,
)

LINEAR = Operation("linear", [(100, 1000)], {"out_features": 200, "bias": False})
FLOPS = 2 * 100 * 1000 * 200
BYTES = 4 * (100 * 1000 + 200 * 1000 + 100 * 200)
CONSTANTS = EnergyConstants(
    fp32_j_per_flop=1e-11, tensor_j_per_flop=2e-12, hbm_j_per_byte=5e-11, gddr_j_per_byte=1e-10, awake_w_per_sm_ghz=0.5
)
SECONDS = 1e-3
A100 = find_gpu("A100 PCIe 40GB")
UNKNOWN = replace(ROUND, idle_curve=None)


def energy_j(operation, gpu=ROUND, clock_mhz=2000.0, constants=CONSTANTS):
    return constants.dynamic_j([operation], np.array([SECONDS]), gpu, clock_mhz)[0].sum()


@pytest.mark.parametrize(("clock", "volts"), [(500, 0.8), (1000, 0.8), (1500, 0.9), (2000, 1.0), (2500, 1.1)])
def test_voltage_over_that_at_the_boost_clock(clock, volts):
    assert relative_voltage(ROUND, clock) == pytest.approx([volts])


def test_voltage_is_the_a100s_where_none_is_known_at_the_same_share_of_the_boost_clock():
    """A100: 694 mV up to about 1035 MHz, 894 mV at its boost clock of 1410 MHz (energaizer2026)."""
    unknown = replace(ROUND, voltage=None)
    assert relative_voltage(unknown, np.array([2000.0, 1000.0])) == pytest.approx([1.0, 694 / 894], rel=0.01)
    assert relative_voltage(unknown, 1000.0) == pytest.approx(relative_voltage(A100, 705.0))


@pytest.mark.parametrize(
    ("changes", "clock_mhz", "precision", "logic_j", "byte_j"),
    [
        pytest.param({}, 2000.0, "fp32", FLOPS * 1e-11, 5e-11, id="the sum of its parts"),
        pytest.param({"memory_type": "GDDR6"}, 2000.0, "fp32", FLOPS * 1e-11, 1e-10, id="a byte of GDDR"),
        # TF32 multiplies numbers of twice the width; in bf16 there are half as many bytes.
        pytest.param({}, 2000.0, "tf32", 2 * FLOPS * 2e-12, 5e-11, id="TF32"),
        pytest.param({}, 2000.0, "bf16", FLOPS * 2e-12, 5e-11 / 2, id="bf16"),
        # At 1500 MHz the voltage is 0.9 of that at the boost clock; memory has its own.
        pytest.param({}, 1500.0, "fp32", FLOPS * 1e-11, 5e-11, id="a lower clock"),
    ],
)
def test_energy_is_that_of_flops_bytes_and_multiprocessors(changes, clock_mhz, precision, logic_j, byte_j):
    """10 multiprocessors are awake for a millisecond, at 0.5 W each per GHz."""
    volts = {2000.0: 1.0, 1500.0: 0.9}[clock_mhz]
    expected = volts**2 * (logic_j + 0.5 * 10 * clock_mhz / 1e3 * SECONDS) + BYTES * byte_j
    found = energy_j(LINEAR.replace(precision=precision), replace(ROUND, **changes), clock_mhz)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("process", "factor"),
    [
        *[("TSMC 16 nm", 2.2), ("TSMC 12FFN", 1.8), ("Samsung 8N", 1.5), ("TSMC 7N", 1.0), ("TSMC 4N", 0.75)],
        *[(None, 1.0), ("unknown", 1.0), ("TSMC 99", 1.0)],
    ],
)
def test_older_processes_cost_more_for_logic(process, factor):
    gpu = replace(ROUND, process=process)
    assert process_factor(gpu) == factor
    assert energy_j(LINEAR, gpu) - BYTES * 5e-11 == pytest.approx(factor * (energy_j(LINEAR) - BYTES * 5e-11))


SMALL = Operation("matmul", [(10, 16, 64), (10, 64, 16)])
SMALL_FLOPS = 10 * 2 * 16 * 16 * 64
WITHOUT = replace(ROUND, tensor_precisions=())
DOUBLE = replace(ROUND, peak_flops={**ROUND.peak_flops, "fp64": 5e11}, tensor_precisions=("tf32", "fp16", "bf16"))
DOUBLE_TENSOR = replace(DOUBLE, tensor_precisions=("tf32", "fp16", "bf16", "fp64"))


@pytest.mark.parametrize(
    ("operation", "precision", "gpu", "paid"),
    [
        pytest.param(LINEAR, "fp32", ROUND, [FLOPS, 0], id="fp32"),
        pytest.param(LINEAR, "fp64", DOUBLE, [2 * FLOPS, 0], id="fp64 is twice as wide as fp32"),
        pytest.param(LINEAR, "fp64", DOUBLE_TENSOR, [FLOPS, 0], id="fp64 on tensor cores draws what fp32 does"),
        pytest.param(LINEAR, "fp32", DOUBLE, [FLOPS, 0], id="fp32 where there is fp64"),
        pytest.param(SMALL, "fp32", ROUND, [SMALL_FLOPS, 0], id="no padding of blocks"),
        pytest.param(SMALL, "fp16", ROUND, [0, SMALL_FLOPS], id="fp16"),
        pytest.param(SMALL, "tf32", ROUND, [0, 2 * SMALL_FLOPS], id="TF32 is twice as wide"),
        pytest.param(SMALL, "fp16", WITHOUT, [SMALL_FLOPS, 0], id="fp16 without tensor cores"),
    ],
)
def test_flops_paid_on_fp32_pipes_and_on_tensor_cores(operation, precision, gpu, paid):
    """Among others, each operation is paid by itself."""
    operations = [LINEAR.replace(precision="bf16"), operation.replace(precision=precision)]
    parts = EnergyConstants.parts(operations, np.full(2, SECONDS), gpu, 2000.0)
    assert parts[1, :2].tolist() == pytest.approx(paid)


@pytest.mark.parametrize(
    ("l2_bytes", "served"),
    [
        pytest.param(960_000, 1.0, id="activations fill half of it"),
        pytest.param(480_000, 0.5, id="activations fill it"),
        pytest.param(240_000, 0.0, id="activations are twice as large"),
    ],
)
def test_bytes_that_the_cache_holds_cost_less(l2_bytes, served):
    """100 x 1000 inputs and 100 x 200 outputs take 480,000 bytes, and 200 x 1000 weights 800,000, all in fp32."""
    gpu = replace(ROUND, l2_bytes=l2_bytes)
    parts = EnergyConstants.parts([LINEAR], np.array([SECONDS]), gpu, 2000.0, 0.75)
    assert parts[0, 2:].tolist() == pytest.approx([800_000 + (1 - 0.75 * served) * 480_000, 0, 10 * 2.0 * SECONDS])
    constants = EnergyConstants(0.0, 0.0, 1e-10, 0.0, 0.0, l2_saves=0.75)
    expected = pytest.approx(1e-10 * parts[0, 2])
    assert energy_j(LINEAR, gpu, constants=constants) == expected
    assert Work.of([LINEAR], gpu, 2000.0, np.ones(1), constants).memory_j[0] == expected


def test_constants_survive_json_and_those_stored_earlier_pay_all_bytes_and_the_square_of_the_voltage():
    stored = CONSTANTS.to_dict()
    assert EnergyConstants.from_dict(stored) == CONSTANTS
    assert stored["gddr_j_per_byte"] == 1e-10
    earlier = EnergyConstants.from_dict({n: stored[n] for n in stored if n not in ("l2_saves", "voltage_power")})
    assert (earlier.l2_saves, earlier.voltage_power) == (0, 2.0)
    assert energy_j(LINEAR, replace(ROUND, l2_bytes=10**9), constants=earlier) == pytest.approx(energy_j(LINEAR))


def of_a100(share):
    """The static power of an A100 at a share of its boost clock, over that at the boost clock."""
    curve, boost = A100.idle_curve, float(A100.boost_clock_mhz)
    return float(curve.at(share * boost)) / float(curve.at(boost))


ONE_POINT = replace(ROUND, idle_curve=IdleCurve((2000.0,), (30.0,)), idle_power_w=None)
STATIC_W = [
    *[(ROUND, clock, watts) for clock, watts in ((300, 20), (500, 20), (1500, 40), (2000, 50), (2500, 50))],
    # A board with a context draws no less than without.
    *[(replace(ROUND, idle_power_w=30.0), clock, watts) for clock, watts in ((500, 30), (2000, 50))],
    # Where no curve is known: 0.18 of the cap, at most 80 W, at least what the board draws with no process on it.
    (UNKNOWN, 2000, 36),
    (replace(UNKNOWN, power_limit_w=1000.0), 2000, 80),
    (replace(UNKNOWN, idle_power_w=60.0), 2000, 60),
    (replace(UNKNOWN, idle_power_w=None), 2000, 36),
    (replace(UNKNOWN, idle_power_w=35.5), 500, 35.5),
    (replace(UNKNOWN, idle_power_w=None, power_limit_w=2.0), 2000, 0.36),
    # It falls with the clock as an A100's does.
    (ONE_POINT, 1000, 30 * of_a100(0.5)),
    (UNKNOWN, 500, 36 * of_a100(0.25)),
]


def test_static_power_of_one_gpu_and_of_many():
    gpus, clocks, watts = zip(*STATIC_W, strict=True)
    for gpu, clock, expected in STATIC_W:
        assert static_power_w(gpu, clock) == pytest.approx(expected)
        assert static_power_w(gpu, np.array([clock, clock])) == pytest.approx([expected, expected])
    together = static_power_w(Boards.of(gpus), np.array([clocks, clocks], dtype=float).T)
    assert together == pytest.approx(np.array([watts, watts]).T)
