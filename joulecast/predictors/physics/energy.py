"""The dynamic energy of work on any GPU at any clock, and the static power of a board without work.

Moving a byte and computing a FLOP take energy, and so does every clock cycle of an SM that is awake:

    E = bytes x e_memory + k V^2 (FLOPs x e_unit + SMs x clock x device time x e_awake)

V is the supply voltage relative to that at the boost clock (`RelativeVoltage`): switching a capacitance C takes energy
proportional to C V^2. k is the energy of logic in the chip's manufacturing process relative to 7 nm. e_memory depends
on the type of memory (HBM or GDDR), e_unit on the unit that computes (fp32 pipes or tensor cores). Static power comes
on top.

Bytes that the L2 cache still holds take less energy, because they do not come from memory (`l2_share`). Without this,
a ResNet-101 in batches of 8 images, whose activations mostly fit into the 40 MB of an A100, was predicted to draw
20 % more than was measured (energaizer2026), and one in batches of 64 images 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self, cast

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU, Boards, each_of, find_gpu, per_gpu
from ...hardware.gpu import IdleCurve, VoltageCurve
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...system.caches import remembered
from ..formats.numbers import numbers
from .operation_numbers import numbers_of
from .roofline import of_precisions, on_tensor_cores, precision_table

# Process in nm -> energy of logic relative to TSMC 7 nm, each at its highest voltage. 12 nm and Samsung's 8 nm were
# chosen with the measured powers of the RTX 2080 Ti and the A10 in view. The others are priors, not measurements.
_PROCESS = {"16": 2.2, "14": 2.2, "12": 1.8, "8": 1.5, "7": 1.0, "6": 0.95, "5": 0.8, "4": 0.75, "3": 0.65}
# Static power as a share of the power cap where none was measured, and its upper limit in watts. Measured shares: A30
# 0.20, A100 0.18 at low clocks, H100 SXM 0.10.
_STATIC_SHARE, _MOST_STATIC_W = 0.18, 80.0

L2_SAVES = 1 - 368 / 2090
"""Share of the energy of an access that is saved if L2 serves it instead of DRAM: 368 and 2090 pJ for 32 bytes on an
A100 (Delestrac et al., ASAP 2024). A fit to measured networks gave 0.79 instead of 0.82."""


@cache
def best_known() -> GPU:
    """The GPU whose voltage, idle power and energies of memory accesses stand for those of others, scaled to them.

    It is the only one with published energies of its levels of memory (Delestrac et al., ASAP 2024).
    """
    return find_gpu("NVIDIA A100-PCIE-40GB")


class RelativeVoltage(NamedTuple):
    """Supply voltage at a clock over that at the boost clock, of one GPU or of several.

    Args:
        curve: The measured curve; for several GPUs its fields are arrays of shape (gpus, 1, ...).
        measured_boost_mhz: Boost clock of the GPU that it was measured on.
        boost_mhz: Boost clock of the GPU that it is scaled to.
        boost_mv: Millivolts of the measured GPU at its boost clock.
    """

    curve: VoltageCurve
    measured_boost_mhz: Any
    boost_mhz: Any
    boost_mv: Any

    def at(self, clock_mhz: FloatArray) -> FloatArray:
        """The voltage at each of some clocks, relative to that at the boost clock; in the shape of the clocks."""
        relative: FloatArray = self.curve.at(clock_mhz * self.measured_boost_mhz / self.boost_mhz) / self.boost_mv
        return relative


@lru_cache(maxsize=256)
def voltage_of(gpu: GPU, axes: int = 1) -> RelativeVoltage:
    """The voltage of a GPU; without a measured curve that of `best_known`, scaled to its boost clock.

    `axes`: For several GPUs, the axes of the clocks beside that of the GPUs.
    """
    if isinstance(gpu, Boards):
        table = np.array([(*astuple(one.curve), *one[1:]) for one in map(voltage_of, gpu.each)], dtype=float).T
        figures, clocks = np.split(table.reshape(*table.shape, *(1,) * axes), [-3])
        return RelativeVoltage(VoltageCurve(*figures), *clocks)
    known = best_known() if gpu.voltage is None else gpu
    curve, boost_mhz = cast(VoltageCurve, known.voltage), float(known.boost_clock_mhz)
    return RelativeVoltage(curve, boost_mhz, float(gpu.boost_clock_mhz), float(curve.at(boost_mhz)))


def relative_voltage(gpu: GPU, clock_mhz: FloatArray | float) -> FloatArray:
    """Supply voltage at a clock over that at the boost clock.

    Returns:
        An array in the shape of `clock_mhz`, or of shape (1,) for a number.
    """
    return voltage_of(gpu).at(np.atleast_1d(np.asarray(clock_mhz, dtype=float)))


def logic_energy(voltage: FloatArray, power: FloatArray | float) -> FloatArray:
    """Energy of a chip's logic, relative to that at the boost clock."""
    # numpy's own power function takes ten times as long.
    found: FloatArray = voltage**2 * (1.0 + (power - 2.0) * (voltage - 1.0))
    return found


def static_power_w(gpu: GPU, clock_mhz: Any) -> Any:
    """Board power in watts while a process has a context open on the GPU, but no kernel runs.

    Where it was not measured at several clocks, it follows the clock as that of `best_known` does.
    """
    return _static_power_w(gpu, clock_mhz) if np.ndim(clock_mhz) else _static_power_at_w(gpu, float(clock_mhz))


@remembered()
def _static_power_at_w(gpu: GPU, clock_mhz: float) -> float:
    return float(_static_power_w(gpu, clock_mhz))


def _static_power_w(gpu: GPU, clock_mhz: Any) -> Any:
    like, top = cast(IdleCurve, best_known().idle_curve), float(best_known().boost_clock_mhz)
    each, shape = each_of(gpu), np.shape(clock_mhz)
    clocks = np.reshape(clock_mhz, (len(each), -1))
    watts = (
        np.interp(clocks / gpu.boost_clock_mhz * top, like.clock_mhz, like.power_w) / like.at(top) * _at_boost_w(gpu)
    )
    for row, one in enumerate(each):
        if one.idle_curve is not None and len(one.idle_curve.clock_mhz) > 1:
            watts[row] = np.interp(clocks[row], one.idle_curve.clock_mhz, one.idle_curve.power_w)
    # A board with a context open draws no less than one without.
    return np.maximum(watts, _without_process_w(gpu)).reshape(shape)


@per_gpu
def _at_boost_w(gpu: GPU) -> float:
    usual_w = max(_without_process_w(gpu), min(_STATIC_SHARE * gpu.power_limit_w, _MOST_STATIC_W))
    return usual_w if gpu.idle_curve is None else gpu.idle_curve.power_w[0]


@per_gpu
def _without_process_w(gpu: GPU) -> float:
    return gpu.idle_power_w or 0.0


@per_gpu
@lru_cache(maxsize=512)
def _tf32_doubles(gpu: GPU) -> FloatArray:
    """2 for precisions that run as TF32, otherwise 1; see `of_precisions`."""
    return precision_table(gpu, lambda precision: 1.0 + (gpu.running_precision(precision) == "tf32"))


@per_gpu
def process_factor(gpu: GPU) -> float:
    """Energy of the chip's logic relative to a 7 nm process; 1 where the process is not known."""
    digits = "".join(c if c.isdigit() else " " for c in gpu.process or "").split()
    return _PROCESS.get(digits[0], 1.0) if digits else 1.0


def _activation_bytes(n: Any) -> FloatArray:
    """Bytes that operations move apart from their parameters, shape (operations,); n holds their numbers."""
    found: FloatArray = np.maximum(n.bytes_read + n.bytes_written - n.element_bytes * n.parameters, 0.0)
    return found


def l2_share(n: Any, gpu: GPU) -> FloatArray:
    """Share of the activations of operations that the L2 cache serves, shape (operations,).

    It serves all of them if they fit into half of it: its other half holds what other operations left, or, on a GPU
    with two partitions, a copy of the same data. From there the share falls with the logarithm of their size to none at
    twice the cache, so that twice the data never take more than four times the energy. On 221 networks on A100 and A10
    (energaizer2026) the mean errors of energy are the same as with a share that falls to none at the size of the cache
    (3.4 and 8.0 % instead of 3.4 and 8.2 %).
    """
    share: FloatArray = np.clip(0.5 - 0.5 * np.log2(np.maximum(_activation_bytes(n), 1.0) / gpu.l2_bytes), 0.0, 1.0)
    return share


@dataclass(frozen=True)
class EnergyConstants:
    """Energy per unit of work on a 7 nm chip at its highest voltage.

    Args:
        fp32_j_per_flop, tensor_j_per_flop: Joules per FLOP on fp32 pipes and on tensor cores; a multiply-add is two.
        hbm_j_per_byte, gddr_j_per_byte: Joules per byte from or to HBM and GDDR, including the path through the caches.
        awake_w_per_sm_ghz: Watts of a working SM per GHz of graphics clock, beside the energy of its FLOPs.
        l2_saves: Share of the joules of a byte that is saved if L2 holds it. The other constants were fitted with it;
            0 if they were fitted as if all bytes came from memory.
        voltage_power: The power of the supply voltage that the energy of logic follows (clock.py). The other constants
            were fitted with it.
    """

    fp32_j_per_flop: float
    tensor_j_per_flop: float
    hbm_j_per_byte: float
    gddr_j_per_byte: float
    awake_w_per_sm_ghz: float
    l2_saves: float = 0.0
    voltage_power: float = 2.0

    @classmethod
    def of(cls, values: FloatArray, l2_saves: float = 0.0, voltage_power: float = 2.0) -> Self:
        """The constants from the five that `parts` are multiplied with, in the order of the fields, shape (5,)."""
        fp32, tensor, hbm, gddr, awake = values.tolist()
        return cls(fp32, tensor, hbm, gddr, awake, l2_saves, voltage_power)

    def dynamic_j(
        self, operations: Sequence[Operation], device_s: FloatArray, gpu: GPU, clock_mhz: FloatArray | float
    ) -> FloatArray:
        """Joules above static power by each of the first five constants, shape (..., operations, 5)."""
        parts = self.parts(operations, device_s, gpu, clock_mhz, self.l2_saves, self.voltage_power)
        joules: FloatArray = parts * self.values()
        return joules

    @staticmethod
    def parts(
        operations: Sequence[Operation],
        device_s: FloatArray,
        gpu: GPU,
        clock_mhz: FloatArray | float,
        l2_saves: float = 0.0,
        voltage_power: float = 2.0,
    ) -> FloatArray:
        """How often each operation pays each constant: the amounts that the constants are multiplied with.

        Returns:
            Shape (..., operations, 5), columns in the order of the first five fields.
        """
        n = numbers_of(operations)
        tensor = on_tensor_cores(n, gpu)
        # Tiles are padded with zeros (a step of decoding has one row in a tile of 64). Multiplying zeros switches next
        # to nothing, so the padding takes time but no energy.
        # TF32 multiplies numbers of twice the width of half precision, and fp64 of twice the width of fp32. On tensor
        # cores fp64 is taken to draw what fp32 does: an A100 has 19.5 TFLOP/s of either under the same cap.
        double = n.element_bytes == ELEMENT_BYTES["fp64"]
        flops = n.flops * of_precisions(n.precision, gpu, _tf32_doubles(gpu))
        flops = np.where(double & ~tensor, 2.0 * flops, flops)
        tensor = tensor & ~double
        moved = n.bytes_read + n.bytes_written
        if l2_saves:
            moved = moved - l2_saves * l2_share(n, gpu) * _activation_bytes(n)
        logic = process_factor(gpu) * logic_energy(relative_voltage(gpu, clock_mhz), voltage_power)
        awake = gpu.sms * np.asarray(clock_mhz) / 1e3 * device_s
        paid = np.empty((*device_s.shape, 5))
        paid[..., 0], paid[..., 1] = logic * np.where(tensor, 0.0, flops), logic * np.where(tensor, flops, 0.0)
        paid[..., 2], paid[..., 3] = np.where(gpu.has_hbm, moved, 0.0), np.where(gpu.has_hbm, 0.0, moved)
        paid[..., 4] = logic * awake
        return paid

    def values(self) -> FloatArray:
        """The five constants that `parts` are multiplied with, in the order of the fields, shape (5,)."""
        return np.array([getattr(self, field.name) for field in fields(self)[:5]])

    def to_dict(self) -> dict[str, float]:
        """The constants as a dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(**numbers(value))


PRIOR_ENERGY = EnergyConstants(
    # An A100 that multiplies fp32 matrices at 15 TFLOP/s draws its cap of 250 W. 65 W of them are static, and memory
    # and awake SMs take some more, which leaves 8 to 10 pJ per FLOP. Arithmetic alone takes 2.3 pJ at 45 nm (Horowitz,
    # ISSCC 2014), and a third of that at 7 nm: instructions and registers take most of the energy.
    fp32_j_per_flop=8e-12,
    # The same estimate for bf16 at 200 TFLOP/s.
    tensor_j_per_flop=0.7e-12,
    # 3.9 pJ per bit of HBM2 (O'Connor et al., MICRO 2017), and as much for the path through caches and registers.
    hbm_j_per_byte=62e-12,
    # 7 to 9 pJ per bit of GDDR6 and 14 pJ per bit of GDDR5 (O'Connor et al.), and the same path.
    gddr_j_per_byte=110e-12,
    # This gives 60 W for the 108 SMs of an A100 at 1.4 GHz. A kernel that only waits for memory shows some 30 W; the
    # spread below allows for a factor of two.
    awake_w_per_sm_ghz=0.4,
    voltage_power=3.0,
)
"""The energy constants where no power was measured, and the prior of their fit where it was."""

ENERGY_SPREAD = (1.6, 1.6, 1.4, 1.4, 2.0)
"""Standard deviations of the priors, as factors on the constants, in the order of the fields."""
