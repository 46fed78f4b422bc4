"""Device time and energy of operations on any GPU at any clock: physics with a handful of constants.

Time. Compute scales with the graphics clock, DRAM does not, and the caches and load units between them do: at low
clocks they slow memory-bound work down, too. The three overlap, but not wholly; their p-norm is the least time.

Energy. Moving a byte and computing a FLOP cost energy, and so does an SM that is awake:

    E = bytes x e_memory + k V^2 (FLOPs x e_unit + SMs x clock x device time x e_awake)

with V the supply voltage relative to that at the top clock, k the chip's process relative to 7 nm, e_memory by type of
memory and e_unit by unit (fp32 pipes or tensor cores). Static power comes on top.

What another clock or a power cap changes in that, clock.py says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any, Self

import numpy as np

from ...hardware import GPU, find_gpu
from ...operation_list import OperationList
from ...operations import Operation
from ..formats.numbers import numbers
from .bandwidth import reached_bandwidth
from .features import (
    FAMILIES,
    KIND_PLACES,
    FloatArray,
    by_precision,
    dense_convolutions,
    numbers_of,
    peak_flops,
    roofline,
)

_LEAST_S = 1e-9
# Bytes per clock that an SM moves: half of the 64 that its L1 is built for. Fits the A100's bf16 networks at 510 MHz.
_SM_BYTES = 36.0
# Rows and columns of the tiles that tensor cores compute half precision in, and what each reaches of the best:
# libraries take the one that fills the multiprocessors best. The shares are round numbers, looked at on the A100's
# networks.
_HALF_TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.85), (64, 128, 0.65), (128, 64, 0.65), (64, 64, 0.5))
_ATTENTION_ROWS = 64.0  # Of a tile of FlashAttention: four warps of 16 (Dao, arXiv 2307.08691).
_CONVOLUTION = FAMILIES.index("convolution")
_HALF = 2.0  # Bytes of an element.
_TILE = 128.0  # Rows and columns of the tiles that products are computed in: 2 x 128^2 FLOPs for 2 x 128 elements.
# Tensor cores are fed from shared memory, where each warp loads what its part of a tile needs: 64 x 64 at most, because
# the sums must fit into its registers. What an SM multiplies in a clock differs fourfold (A100 2048 FLOPs, A10 1024,
# GeForce 512 with sums in fp32), what it loads does not: that is why an A100 reaches less of its peak. Of 128, 96, 85,
# 64 and 48, this one carries products best from A100 to A10 (networks in bf16) and back.
_WARP_TILE = 64.0
# Energy of logic relative to TSMC 7 nm at each one's top voltage. 12 nm and Samsung's 8 nm were looked at on the powers
# of the RTX 2080 Ti and the A10; the others are priors: nobody's power was among the data.
_PROCESS = {"16": 2.2, "14": 2.2, "12": 1.8, "8": 1.5, "7": 1.0, "6": 0.95, "5": 0.8, "4": 0.75, "3": 0.65}
_STATIC_SHARE, _MOST_STATIC_W = 0.18, 80.0  # Of the cap: A30 0.20, A100 0.18 at low clocks, H100 SXM 0.10.
_VOLTAGE_LIKE = (
    "NVIDIA A100-PCIE-40GB"  # Whose voltage curve is taken, relative to the boost clock, where none is known.
)


def _cubed(values: FloatArray) -> FloatArray:
    # (numpy's power takes ten times as long, and a sweep over clocks does little else)
    return values * values * values


@dataclass(frozen=True)
class LeastTimes:
    """The least seconds that each operation needs: for computing, for DRAM, and for the way between.

    Args:
        compute_s, cache_s: At the clock they were made for; they scale with it.
        memory_s: At any clock.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    cache_s: FloatArray

    @classmethod
    def of(cls, operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Self:
        """Least times of operations on a GPU at a clock."""
        line = roofline(operations, gpu, clock_mhz)
        n = numbers_of(operations)
        is_half = n.element_bytes == _HALF
        moved = n.bytes_read + n.bytes_written
        # An instruction moves an element, however narrow.
        passed = moved * np.where(is_half & (n.is_product == 0), 4 / _HALF, 1.0)
        # A tile of a product reads its rows and columns for itself, from the cache.
        tiles_s = (
            n.is_product
            * n.computed_flops
            * n.element_bytes
            / np.where(is_half & (n.rows >= _WARP_TILE), _WARP_TILE, _TILE)
        )
        compute_s, way = line.compute_s, _SM_BYTES * gpu.sms * clock_mhz * 1e6
        in_tiles = is_half & (n.is_product > 0) & (n.family != _CONVOLUTION)
        if in_tiles.any():
            longer = np.where(in_tiles, _half_tiles(n, gpu) * n.flops / np.maximum(n.computed_flops, 1.0), 1.0)
            # (only what tiles compute and read is padded: a weight that one row meets passes once, as any does)
            compute_s, tiles_s = compute_s * longer, tiles_s * longer
        parts = np.array([compute_s, moved / reached_bandwidth(gpu), (passed + tiles_s) / way])
        _put_convolutions(parts, operations, gpu, clock_mhz, way)
        return cls(*parts)

    def slowed(self, factor: FloatArray | float) -> Self:
        """The same at a clock that is lower by a factor."""
        return type(self)(self.compute_s * factor, self.memory_s, self.cache_s * factor)

    @cached_property
    def time_s(self) -> FloatArray:
        """The p-norm of the three, at least a nanosecond."""
        return np.maximum(self.overlapped_s, _LEAST_S)

    @cached_property
    def overlapped_s(self) -> FloatArray:
        """The p-norm of the three, p = 3."""
        norm: FloatArray = np.cbrt(_cubed(self.compute_s) + _cubed(self.memory_s) + _cubed(self.cache_s))
        return norm

    def times(self, ratio: FloatArray) -> Self:
        """Each of the three longer by a ratio, and so is their p-norm."""
        return type(self)(self.compute_s * ratio, self.memory_s * ratio, self.cache_s * ratio)


def _put_convolutions(
    parts: FloatArray, operations: Sequence[Operation], gpu: GPU, clock_mhz: float, way: float
) -> None:
    """Put the least times of dense convolutions in the place of what their FLOPs alone say; way in bytes per second.

    Those on tensor cores stay as they are: their blocks and splits are not known, and whole waves of 128 x 64 make
    small batches several times slower than FLOPs do (with them, ResNet-101 on A100 and A10 came out far too slow).
    """
    dense = OperationList.of(operations).derived(dense_convolutions)
    on_pipes = peak_flops(dense.precision, gpu) <= gpu.peak_flops["fp32"]
    work = dense.least(gpu)
    compute_s, memory_s = work.flops / gpu.peak_flops["fp32"], work.bytes / reached_bandwidth(gpu)
    cache_s = (work.bytes + work.flops * dense.element_bytes / _TILE) / way
    together = np.cbrt(_cubed(compute_s) + _cubed(memory_s))
    # At the boost clock, so that each part follows the clock as it does elsewhere.
    longer = np.where(work.in_turn, (compute_s + memory_s) / np.maximum(together, _LEAST_S), 1.0)
    slower = gpu.boost_clock_mhz / clock_mhz
    put = np.array([compute_s * slower, memory_s, cache_s]) * longer
    parts[:, dense.places[on_pipes]] = put[:, on_pipes]


@cache
def _voltage_like() -> GPU:
    return find_gpu(_VOLTAGE_LIKE)


@cache
def _boost_voltage(gpu: GPU) -> float:
    return float(gpu.voltage.at(float(gpu.boost_clock_mhz))) if gpu.voltage else 1.0


def _half_tiles(n: Any, gpu: GPU) -> FloatArray:
    """How much longer products take than their FLOPs say, because the multiprocessors work in whole waves of tiles.

    Attention of few queries (a step of decoding) shares its keys out, so that no multiprocessor idles; the rows of its
    tiles are filled up with zeros all the same.
    """
    size = np.maximum(n.batch * n.rows * n.columns, 1.0)
    longer = [
        np.ceil(n.batch * np.ceil(n.rows / rows) * np.ceil(n.columns / columns) / gpu.sms)
        * (gpu.sms * rows * columns / share)
        / size
        for rows, columns, share in _HALF_TILES
    ]
    least: FloatArray = np.min(longer, axis=0)
    few = (n.kind == KIND_PLACES["attention"]) & (n.rows < _ATTENTION_ROWS)
    return np.where(few, _ATTENTION_ROWS / np.maximum(n.rows, 1.0), least)


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
    curve = gpu.idle_curve
    if curve is not None and len(curve.clock_mhz) > 1:
        watts = np.interp(clock_mhz, curve.clock_mhz, curve.power_w)
    else:
        usual_w = max(gpu.idle_power_w or 0.0, min(_STATIC_SHARE * gpu.power_limit_w, _MOST_STATIC_W))
        watts = _idle_like_known(np.asarray(clock_mhz) / gpu.boost_clock_mhz) * (
            usual_w if curve is None else curve.power_w[0]
        )
    return watts if np.ndim(clock_mhz) else float(watts)


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
            gpu: Where.
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
        tensor = by_precision(n.precision, lambda p: float(gpu.running_precision(p) != "fp32")) > 0
        # What fills up the tiles of tensor cores is zeros, which switch nothing: a step of decoding has one row of 64.
        done = np.where(n.element_bytes == _HALF, n.flops, n.computed_flops)
        # TF32 multiplies numbers of twice the width.
        flops = done * by_precision(n.precision, lambda p: 1.0 + (gpu.running_precision(p) == "tf32"))
        moved = n.bytes_read + n.bytes_written
        hbm = "HBM" in (gpu.memory_type or "HBM")
        logic = process_factor(gpu) * relative_voltage(gpu, clock_mhz) ** 2
        awake = gpu.sms * np.asarray(clock_mhz) / 1e3 * device_s
        nothing = np.zeros(len(operations))
        return np.column_stack(
            [
                logic * np.where(tensor, 0.0, flops),
                logic * np.where(tensor, flops, 0.0),
                moved if hbm else nothing,
                nothing if hbm else moved,
                logic * awake,
            ]
        )

    def values(self) -> FloatArray:
        """The five in their order."""
        return np.array(list(asdict(self).values()))

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
