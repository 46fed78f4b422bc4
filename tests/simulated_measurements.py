"""Simulated measurements of operations in loops, which follow physics exactly but for slowdowns that are known."""

from dataclasses import replace

import numpy as np

from joulecast import Operation
from joulecast.datasets import Card, Dataset, Measurement, NetworkMeasurement
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model.machine import Machine
from joulecast.predictors.model.physics import STARTS, costs
from joulecast.predictors.model.work import Work
from joulecast.predictors.physics.energy import EnergyConstants, static_power_w
from joulecast.predictors.physics.fp32_kernels import counted_s
from joulecast.predictors.physics.least_times import LeastTimes

STATIC_W, ACTIVE_W = 35.0, 160.0
HOST_S = {"conv2d": 30e-6, "relu": 10e-6, "linear": 25e-6, "batch_norm": 32e-6}
SLOWDOWN = {"conv2d": 1.1, "relu": 1.2, "linear": 1.3, "batch_norm": 1.4}


def simulated_operations(mode: str = "inference") -> list[Operation]:
    """Operations of four kinds over four decades of size."""
    operations = []
    for channels in (16, 32, 64, 128, 256):
        for size in (4, 7, 14, 28, 56):
            shape = (32, channels, size, size)
            conv = {"out_channels": channels, "kernel_size": 3, "padding": 1, "bias": False}
            operations += [
                Operation("conv2d", [shape], conv, precision="fp32", mode=mode),
                Operation("relu", [shape], mode=mode),
                Operation("batch_norm", [shape], mode=mode),
                Operation("linear", [(size * size, channels)], {"out_features": 4 * channels}, mode=mode),
            ]
    return operations


def simulated_dataset(mode: str = "inference") -> Dataset:
    """Measurements of these operations in loops that follow max(device, host) and the power law exactly."""
    gpu = find_gpu("A30")
    operations = simulated_operations(mode)
    rng = np.random.default_rng(0)
    measurements = []
    for operation, least_s in zip(operations, counted_s(operations, gpu), strict=True):
        device_s = SLOWDOWN[operation.kind] * least_s
        host_s = HOST_S[operation.kind] * rng.uniform(1.0, 1.02)
        time_s = max(device_s, host_s)
        power_w = STATIC_W + (ACTIVE_W - STATIC_W) * device_s / time_s
        measurements.append(
            Measurement(operation, time_s, power_w, time_s * power_w, campaign="simulated", method="forward")
        )
    networks = tuple(
        NetworkMeasurement("resnet18", (batch, 3, 64, 64), "fp32", mode, 4e-3, 100.0, 0.4) for batch in (8, 16)
    )
    card = Card(gpu.name, None, "simulated", "none", {"forward": "simulated"})
    return Dataset(card, tuple(measurements), networks)


# Slowdown of the simulated libraries relative to the least time of physics.
SLOWER_THAN_PHYSICS = {"conv2d": 2.0, "relu": 1.2, "linear": 1.3, "batch_norm": 1.5}
TRUE_ENERGY = EnergyConstants(5e-12, 0.6e-12, 50e-12, 90e-12, 0.5)


def simulated_gpu(name: str) -> Dataset:
    """Device times and powers of a GPU that follow physics, with one slowdown per kind, exactly."""
    gpu = find_gpu(name)
    operations = simulated_operations()
    clock = float(gpu.boost_clock_mhz)
    least = LeastTimes.of(operations, gpu, clock)
    device_s = least.time_s * np.array([SLOWER_THAN_PHYSICS[operation.kind] for operation in operations])
    energy_j = TRUE_ENERGY.dynamic_j(operations, device_s, gpu, clock).sum(axis=1)
    power_w = static_power_w(gpu, clock) + energy_j / device_s
    rows = []
    for operation, seconds, watts in zip(operations, device_s.tolist(), power_w.tolist(), strict=True):
        held_w = min(watts, gpu.power_limit_w)
        rows.append(
            Measurement(operation, seconds, held_w, seconds * held_w, device_time_s=seconds, method="simulated")
        )
    return Dataset(Card(gpu.name, None, "simulated", "none", {"simulated": "simulated"}), tuple(rows))


def simulated_kernels(name: str) -> Dataset:
    """Linear layers in bf16 that follow physics and are 10 % slower if the number of rows is odd.

    Two rows with wrong times, a sustained run and one by vLLM, must be ignored when kernels are fitted.
    """
    gpu = find_gpu(name)
    sizes = [
        (rows, columns, reduction)
        for rows in (1, 7, 16, 64, 129, 512, 1025, 4096)
        for columns in (64, 256, 1024, 3584, 8192)
        for reduction in (64, 512, 2048, 8192)
    ]
    operations = OperationList(
        Operation("linear", [(rows, reduction)], {"out_features": columns, "bias": False}, precision="bf16")
        for rows, columns, reduction in sizes
    )
    seconds = costs(Work.of(operations), Machine.of(gpu), STARTS).time_s
    rows = []
    for operation, second in zip(operations, seconds.tolist(), strict=True):
        device_s = second * (1.1 if operation.input_shapes[0][0] % 2 else 1.0)
        rows.append(Measurement(operation, device_s, None, None, device_time_s=device_s, method="simulated"))
    by_vllm = Operation(
        "linear", [(8, 64)], {"out_features": 64, "bias": False, "implementation": "vllm"}, precision="bf16"
    )
    rows.append(replace(rows[0], device_time_s=5.0, sustained=True))
    rows.append(Measurement(by_vllm, 7.0, None, None, device_time_s=7.0, method="simulated"))
    return Dataset(Card(gpu.name, None, "simulated", "none", {"simulated": "simulated"}), tuple(rows))
