"""What work costs in energy on any GPU at any clock, and what a board draws without any.

Moving a byte and computing a FLOP cost energy, and so does an SM that is awake:

    E = bytes x e_memory + k V^2 (FLOPs x e_unit + SMs x clock x device time x e_awake)

with V the supply voltage relative to that at the top clock, k the chip's process relative to 7 nm, e_memory by type of
memory and e_unit by unit (fp32 pipes or tensor cores). Static power comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU, find_gpu
from ...operations.operation import Operation
from ...operations.precisions import ELEMENT_BYTES
from ..formats.numbers import numbers
from .operation_numbers import by_precision, numbers_of
from .roofline import on_tensor_cores

_HALF = 2.0  # Bytes of an element.
# Energy of logic relative to TSMC 7 nm at each one's top voltage. 12 nm and Samsung's 8 nm were looked at on the powers
# of the RTX 2080 Ti and the A10; the others are priors: nobody's power was among the data.
_PROCESS = {"16": 2.2, "14": 2.2, "12": 1.8, "8": 1.5, "7": 1.0, "6": 0.95, "5": 0.8, "4": 0.75, "3": 0.65}
_STATIC_SHARE, _MOST_STATIC_W = 0.18, 80.0  # Of the cap: A30 0.20, A100 0.18 at low clocks, H100 SXM 0.10.
# Whose voltage and idle curves are taken, relative to the boost clock, where none are known.
_VOLTAGE_LIKE = "NVIDIA A100-PCIE-40GB"


@cache
def _voltage_like() -> GPU:
    return find_gpu(_VOLTAGE_LIKE)


@cache
def _boost_voltage(gpu: GPU) -> float:
    return float(gpu.voltage.at(float(gpu.boost_clock_mhz))) if gpu.voltage else 1.0


def relative_voltage(gpu: GPU, clock_mhz: FloatArray | float) -> FloatArray:
    """Supply voltage at a clock over that at the boost clock."""
    known = _voltage_like() if gpu.voltage is None else gpu
    curve = known.voltage
    if curve is None:  # a catalogue that was changed
        return np.ones_like(np.atleast_1d(np.asarray(clock_mhz, dtype=float)))
    clocks = np.atleast_1d(np.asarray(clock_mhz, dtype=float)) * known.boost_clock_mhz / gpu.boost_clock_mhz
    relative: FloatArray = curve.at(clocks) / _boost_voltage(known)
    return relative


def static_power_w(gpu: GPU, clock_mhz: Any) -> Any:
    """Board power with a context open and nothing to do, at a clock or at each of an array of them."""
    return _static_power_w(gpu, clock_mhz) if np.ndim(clock_mhz) else _static_power_at_w(gpu, float(clock_mhz))


@lru_cache(maxsize=4096)
def _static_power_at_w(gpu: GPU, clock_mhz: float) -> float:
    return float(_static_power_w(gpu, clock_mhz))


def _static_power_w(gpu: GPU, clock_mhz: Any) -> Any:
    # A board with a context open draws no less than one without.
    return np.maximum(_power_without_work_w(gpu, clock_mhz), gpu.idle_power_w or 0.0)


def _power_without_work_w(gpu: GPU, clock_mhz: Any) -> Any:
    curve = gpu.idle_curve
    if curve is not None and len(curve.clock_mhz) > 1:
        return np.interp(clock_mhz, curve.clock_mhz, curve.power_w)
    usual_w = max(gpu.idle_power_w or 0.0, min(_STATIC_SHARE * gpu.power_limit_w, _MOST_STATIC_W))
    relative_clock = np.asarray(clock_mhz) / gpu.boost_clock_mhz
    return _idle_like_known(relative_clock) * (usual_w if curve is None else curve.power_w[0])


def _idle_like_known(relative_clock: FloatArray) -> FloatArray:
    """Power without work over that at the boost clock, as the GPU has it whose voltage is taken for others."""
    known = _voltage_like()
    curve = known.idle_curve
    if curve is None:  # a catalogue that was changed
        return np.ones_like(relative_clock)
    top = float(known.boost_clock_mhz)
    watts: FloatArray = np.interp(relative_clock * top, curve.clock_mhz, curve.power_w)
    return watts / curve.at(top)


def process_factor(gpu: GPU) -> float:
    """Energy of the chip's logic relative to 7 nm; 1 where the process is not known."""
    digits = "".join(c if c.isdigit() else " " for c in gpu.process or "").split()
    return _PROCESS.get(digits[0], 1.0) if digits else 1.0


@dataclass(frozen=True)
class EnergyConstants:
    """What work costs on a 7 nm chip at its top voltage.

    Args:
        fp32_j_per_flop, tensor_j_per_flop: By unit; a multiply-add is two FLOPs.
        hbm_j_per_byte, gddr_j_per_byte: By type of memory, with everything on the way.
        awake_w_per_sm_ghz: Of an SM that works, per GHz.
    """

    fp32_j_per_flop: float
    tensor_j_per_flop: float
    hbm_j_per_byte: float
    gddr_j_per_byte: float
    awake_w_per_sm_ghz: float

    def dynamic_energy_j(
        self,
        operations: Sequence[Operation],
        device_s: FloatArray,
        gpu: GPU,
        clock_mhz: FloatArray | float,
    ) -> FloatArray:
        """Joules above static power, one value per operation.

        Args:
            operations: What runs.
            device_s: What it really takes at this clock.
            gpu: The GPU that they run on.
            clock_mhz: One clock, or one for each operation.
        """
        parts = self.parts(operations, device_s, gpu, clock_mhz)
        energy_j: FloatArray = parts @ self.values()
        return energy_j

    @staticmethod
    def parts(
        operations: Sequence[Operation],
        device_s: FloatArray,
        gpu: GPU,
        clock_mhz: FloatArray | float,
    ) -> FloatArray:
        """How often each constant is paid: an array of shape (operations, 5) in the order of the fields."""
        n = numbers_of(operations)
        tensor = on_tensor_cores(n, gpu)
        # What fills up the tiles of tensor cores is zeros, which switch nothing: a step of decoding has one row of 64.
        done = np.where(tensor & (n.element_bytes == _HALF), n.flops, n.computed_flops)
        # TF32 multiplies numbers of twice the width of half precision, and fp64 of twice the width of fp32. On tensor
        # cores fp64 is taken to draw what fp32 does: an A100 has 19.5 TFLOP/s of either under the same cap.
        double = n.element_bytes == ELEMENT_BYTES["fp64"]
        flops = done * by_precision(n.precision, lambda p: 1.0 + (gpu.running_precision(p) == "tf32"))
        flops = np.where(double & ~tensor, 2.0 * flops, flops)
        tensor = tensor & ~double
        moved = n.bytes_read + n.bytes_written
        hbm = "HBM" in (gpu.memory_type or "HBM")
        logic = process_factor(gpu) * relative_voltage(gpu, clock_mhz) ** 2
        awake = gpu.sms * np.asarray(clock_mhz) / 1e3 * device_s
        paid = np.zeros((len(operations), 5))
        paid[:, 0], paid[:, 1] = logic * np.where(tensor, 0.0, flops), logic * np.where(tensor, flops, 0.0)
        paid[:, 2 if hbm else 3], paid[:, 4] = moved, logic * awake
        return paid

    def values(self) -> FloatArray:
        """The five in their order."""
        return np.array([getattr(self, field.name) for field in fields(self)])

    def to_json(self) -> dict[str, float]:
        """The constants as a dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**numbers(value))


PRIOR_ENERGY = EnergyConstants(
    # An A100 that multiplies fp32 matrices at 15 TFLOP/s draws its 250 W, 65 W of them without work, and some in memory
    # and SMs that are awake: 8 to 10 pJ. Arithmetic itself is 2.3 pJ at 45 nm (Horowitz, ISSCC 2014), a third of that
    # at 7 nm: instructions and registers are most of it.
    fp32_j_per_flop=8e-12,
    # The same at 200 TFLOP/s in bf16.
    tensor_j_per_flop=0.7e-12,
    # 3.9 pJ per bit of HBM2 (O'Connor et al., MICRO 2017), and as much for the way through caches and registers.
    hbm_j_per_byte=62e-12,
    # 7 to 9 pJ per bit of GDDR6, 14 of GDDR5 (the same), and that way.
    gddr_j_per_byte=110e-12,
    # A kernel that only waits for memory: some 30 W of an A100's 108 SMs at 1.4 GHz.
    awake_w_per_sm_ghz=0.4,
)
"""What to assume where no power was measured; where it was, the prior."""

ENERGY_SPREAD = (1.6, 1.6, 1.4, 1.4, 2.0)
"""Standard deviations of the priors as factors, in the order of the fields."""
