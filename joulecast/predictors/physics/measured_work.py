"""The work of operations that were measured in loops, some of which the power cap throttled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from .clock import Work
from .energy import EnergyConstants
from .least_times import LeastTimes
from .power_cap import loop_clocks_mhz

_AT_CAP = 0.97  # Share of the cap from which a measured loop counts as throttled by it.


def throttled_mhz(
    operations: Sequence[Operation], gpu: GPU, device_s: FloatArray, constants: EnergyConstants, power_limit_w: float
) -> FloatArray:
    """The clock that each operation must have run at, given its measured time under a power cap.

    Returns:
        Clocks in MHz, at most the default clock, shape (operations,).
    """
    boost = float(gpu.boost_clock_mhz)
    least = LeastTimes.of(operations, gpu, boost)
    ratio = device_s / least.time_s
    # The measured time already is the time at the unknown clock. It must not change while that clock is searched for,
    # so all of it counts as memory time, which does not depend on the clock.
    still = replace(
        Work.of(operations, gpu, boost, ratio, constants),
        parts=LeastTimes(np.zeros(len(operations)), least.time_s * ratio, np.zeros(len(operations))),
    )
    return loop_clocks_mhz(still, boost, power_limit_w)


def measured_work(
    operations: Sequence[Operation],
    gpu: GPU,
    device_s: FloatArray,
    dynamic_energy_j: FloatArray,
    power_w: FloatArray,
    constants: EnergyConstants,
) -> Work:
    """The work of operations that were measured at the default clock under the default cap.

    A loop whose power is close to the cap was throttled: it ran at a lower clock than the default. This clock is
    derived from the clock law, and the measured time and energy are taken to hold at it.

    Args:
        operations: The measured operations.
        gpu: The GPU that they were measured on.
        device_s: Device seconds, shape (operations,).
        dynamic_energy_j: Joules above static power, shape (operations,).
        power_w: Board power in watts while each ran, shape (operations,).
        constants: Energy per FLOP, byte and cycle, by which the measured energy is split.
    """
    cap_w = gpu.power_limit_w
    capped = power_w > _AT_CAP * cap_w
    held = np.where(capped, throttled_mhz(operations, gpu, device_s, constants, cap_w), float(gpu.boost_clock_mhz))
    work = Work.of(operations, gpu, held, np.ones(len(operations)), constants)
    return replace(work.scaled_to(device_s, dynamic_energy_j), most_mhz=held, cap_w=cap_w).bounded(operations)
