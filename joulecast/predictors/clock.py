"""What another graphics clock does to device time and dynamic energy, where only the default was measured.

Work that is bound by compute scales with the clock, work that is bound by memory does not; dynamic energy follows
the square of the supply voltage. The voltage is flat up to a knee and then rises in a line; where nobody has
measured it, that of the A100 is taken (EnergAIzer, arXiv 2604.20105: 694 mV up to about 1035 MHz, 894 mV at
1410 MHz), relative to the boost clock. Static power is kept. The power cap is not modelled: a GPU that throttles
at its default clock slows down later than this says.
"""

from __future__ import annotations

from ..hardware import GPU
from .baseline import DeviceCosts
from .features import Roofline

_EXPONENT = 3.0  # p-norm of compute and memory time; they overlap, but not wholly.
_KNEE = 1035 / 1410
_RISE = (894 / 694 - 1) / (1 - _KNEE)


def relative_voltage(clock_mhz: float, gpu: GPU) -> float:
    """Supply voltage over that below the knee."""
    return 1.0 + _RISE * max(0.0, clock_mhz / gpu.boost_clock_mhz - _KNEE)


def at_clock(costs: DeviceCosts, line: Roofline, gpu: GPU, clock_mhz: float) -> DeviceCosts:
    """Device costs at another clock than the default.

    Args:
        costs: At the default clock.
        line: Roofline at the default clock.
        gpu: Whose clocks.
        clock_mhz: The clock to go to.
    """
    slower = gpu.boost_clock_mhz / clock_mhz
    before = (line.compute_s**_EXPONENT + line.memory_s**_EXPONENT) ** (1 / _EXPONENT)
    after = ((line.compute_s * slower) ** _EXPONENT + line.memory_s**_EXPONENT) ** (1 / _EXPONENT)
    stretch = after / before.clip(min=1e-15)
    stretch[before <= 0] = 1.0
    voltage = relative_voltage(clock_mhz, gpu) / relative_voltage(gpu.boost_clock_mhz, gpu)
    return DeviceCosts(costs.time_s * stretch, costs.dynamic_energy_j * voltage**2)
