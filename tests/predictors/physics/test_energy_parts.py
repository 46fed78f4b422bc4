"""How often each energy constant is paid, and static power of boards that the catalogue knows little of, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.hardware.gpu import IdleCurve
from joulecast.operations.operation import Operation
from joulecast.predictors.physics import energy, voltage
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
