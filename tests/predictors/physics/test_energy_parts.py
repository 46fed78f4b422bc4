"""How often each energy constant is paid, and static power of boards that the catalogue knows little of, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.hardware.gpu import IdleCurve
from joulecast.operations.operation import Operation
from joulecast.predictors.physics import energy, voltage
from joulecast.predictors.physics.clock import Work
from joulecast.predictors.physics.energy import EnergyConstants, static_power_w
from joulecast.predictors.physics.voltage import relative_voltage

LINEAR = Operation("linear", [(100, 1000)], {"out_features": 200, "bias": False})
FLOPS = 2 * 100 * 1000 * 200
SMALL = Operation("matmul", [(10, 16, 64), (10, 64, 16)])
SMALL_FLOPS = 10 * 2 * 16 * 16 * 64
# Computed in blocks of 128 x 128, with 32 steps more.
SMALL_COMPUTED = 10 * 2 * 128 * 128 * (64 + 32)
DOUBLE = replace(ROUND, peak_flops={**ROUND.peak_flops, "fp64": 5e11}, tensor_precisions=("tf32", "fp16", "bf16"))
A100 = find_gpu("A100 PCIe 40GB")


def flops_paid(operation, gpu):
    """FLOPs on fp32 pipes and on tensor cores, at the boost clock of a 7 nm chip."""
    parts = EnergyConstants.parts([operation], np.array([1e-3]), gpu, 2000.0)
    return parts[0, :2].tolist()


@pytest.mark.parametrize(
    ("operation", "gpu", "paid"),
    [
        pytest.param(LINEAR, ROUND, [FLOPS, 0], id="fp32"),
        pytest.param(LINEAR.replace(precision="fp64"), DOUBLE, [2 * FLOPS, 0], id="fp64 is twice as wide as fp32"),
        pytest.param(
            LINEAR.replace(precision="fp64"),
            replace(DOUBLE, tensor_precisions=("tf32", "fp16", "bf16", "fp64")),
            [FLOPS, 0],
            id="fp64 on tensor cores draws what fp32 does",
        ),
        pytest.param(LINEAR, DOUBLE, [FLOPS, 0], id="fp32 where there is fp64"),
        pytest.param(SMALL, ROUND, [SMALL_COMPUTED, 0], id="blocks in fp32"),
        pytest.param(SMALL.replace(precision="fp16"), ROUND, [0, SMALL_FLOPS], id="no blocks in fp16"),
        pytest.param(
            SMALL.replace(precision="tf32"), ROUND, [0, 2 * SMALL_COMPUTED], id="blocks in TF32, twice as wide"
        ),
        pytest.param(
            SMALL.replace(precision="fp16"),
            replace(ROUND, tensor_precisions=()),
            [SMALL_COMPUTED, 0],
            id="blocks in fp16 without tensor cores",
        ),
    ],
)
def test_flops_paid(operation, gpu, paid):
    assert flops_paid(operation, gpu) == pytest.approx(paid)


def test_operations_of_several_precisions_are_paid_each_by_itself():
    operations = [LINEAR.replace(precision="fp64"), LINEAR, LINEAR.replace(precision="bf16")]
    parts = EnergyConstants.parts(operations, np.full(3, 1e-3), DOUBLE, 2000.0)
    assert parts[:, :2].tolist() == [[2 * FLOPS, 0], [FLOPS, 0], [0, FLOPS]]


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
    parts = EnergyConstants.parts([LINEAR], np.array([1e-3]), gpu, 2000.0, 0.75)
    assert parts[0, 2:].tolist() == pytest.approx([800_000 + (1 - 0.75 * served) * 480_000, 0, 10 * 2.0 * 1e-3])
    constants = EnergyConstants(0.0, 0.0, 1e-10, 0.0, 0.0, l2_saves=0.75)
    found_j = constants.dynamic_energy_j([LINEAR], np.array([1e-3]), gpu, 2000.0)
    assert found_j.tolist() == pytest.approx([1e-10 * parts[0, 2]])
    (work_j,) = Work.of([LINEAR], gpu, 2000.0, np.ones(1), constants).memory_j.tolist()
    assert work_j == pytest.approx(1e-10 * parts[0, 2])


def test_constants_that_were_stored_before_the_cache_was_known_pay_all_bytes():
    names = ["fp32_j_per_flop", "tensor_j_per_flop", "hbm_j_per_byte", "gddr_j_per_byte", "awake_w_per_sm_ghz"]
    stored = EnergyConstants.from_dict(dict.fromkeys(names, 1.0))
    assert stored.l2_saves == 0
    found_j = stored.dynamic_energy_j([LINEAR], np.zeros(1), replace(ROUND, l2_bytes=10**9), 2000.0)
    assert found_j.tolist() == pytest.approx([FLOPS + 1_280_000])


def test_static_power_is_a_share_of_the_cap_where_nothing_else_is_known():
    """0.18 of 2 W, which is less than the watt or two that a fault would add."""
    unknown = replace(ROUND, idle_curve=None, idle_power_w=None, power_limit_w=2.0)
    assert static_power_w(unknown, 2000.0) == pytest.approx(0.36)
    assert static_power_w(unknown, np.array([2000.0, 2000.0])).tolist() == pytest.approx([0.36, 0.36])


def test_one_point_of_a_curve_falls_with_the_clock_as_the_a100s():
    """30 W at the boost clock; at half of it, the share that an A100 draws at half of its own."""
    one = replace(ROUND, idle_curve=IdleCurve((2000.0,), (30.0,)), idle_power_w=None)
    half = A100.boost_clock_mhz / 2
    expected = 30 * float(A100.idle_curve.at(half)) / float(A100.idle_curve.at(float(A100.boost_clock_mhz)))
    assert expected < 30
    assert static_power_w(one, 1000.0) == pytest.approx(expected)


def test_a_catalogue_without_any_curve_takes_voltage_and_idle_power_for_constant(monkeypatch):
    for module in (energy, voltage):
        monkeypatch.setattr(module, "voltage_like", lambda: replace(A100, voltage=None, idle_curve=None))
    unknown = replace(ROUND, name="GPU of a catalogue without curves", voltage=None, idle_curve=None, idle_power_w=None)
    assert relative_voltage(unknown, np.array([500.0, 2000.0])).tolist() == [1.0, 1.0]
    assert static_power_w(unknown, np.array([500.0, 2000.0])).tolist() == pytest.approx([36.0, 36.0])
