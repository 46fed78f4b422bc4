"""A GPU: the figures of its data sheet, and its voltage and idle power by clock where these were measured."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checked import is_number, shown
from ..errors import InputError
from ..operations.attributes import QUANTIZED

# AMD's LLVM targets -> compute capability of NVIDIA's GPUs of that time (MI100, MI200: A100; MI300: H100; MI350: B200).
_FAMILIES = {"10.3": "10.0", "12.1": "12.0"}
_AMD_GENERATIONS = {"gfx908": 8.0, "gfx90a": 8.0, "gfx942": 9.0, "gfx950": 10.0}
_OTHER_GENERATION = 8.0
MEMORY_LEVELS = ("shared", "l1", "l2", "dram")
"""Levels of memory, from the nearest to the registers to the farthest."""

_LEAST_CAP = 0.1  # Lowest power cap relative to the default, where neither the range of caps nor idle power is known.


@dataclass(frozen=True)
class VoltageCurve:
    """Supply voltage by graphics clock: flat up to a knee, then rising with a bend.

    `flat_mv + (top_mv - flat_mv) * ((clock - knee_mhz) / (top_mhz - knee_mhz)) ** bend` above the knee.
    """

    flat_mv: float
    knee_mhz: float
    top_mhz: float
    top_mv: float
    bend: float

    def at(self, clock_mhz: Any) -> Any:
        """Millivolts at a clock or at each clock of an array. Beyond top_mhz the curve is extrapolated."""
        beyond = (abs(clock_mhz - self.knee_mhz) + clock_mhz - self.knee_mhz) / 2 / (self.top_mhz - self.knee_mhz)
        return self.flat_mv + (self.top_mv - self.flat_mv) * beyond**self.bend


@dataclass(frozen=True)
class IdleCurve:
    """Board power of a GPU that is held at a clock and has no work, interpolated linearly between points.

    This is the static power of the clock model: a CUDA context exists and the memory clock is up. `GPU.idle_power_w` is
    the lower power of a board without any process.
    """

    clock_mhz: tuple[float, ...]
    power_w: tuple[float, ...]

    def at(self, clock_mhz: float) -> float:
        """Watts at a clock; outside the points, the value of the nearest point."""
        right = bisect_right(self.clock_mhz, clock_mhz)
        if right in (0, len(self.clock_mhz)):
            return self.power_w[min(right, len(self.clock_mhz) - 1)]
        low, high = self.clock_mhz[right - 1], self.clock_mhz[right]
        share = (clock_mhz - low) / (high - low)
        return self.power_w[right - 1] * (1 - share) + self.power_w[right] * share


@dataclass(frozen=True)
class GPU:
    """What the data sheet says about a GPU, and what was measured on one.

    Args:
        name: The name that NVML and `nvidia-smi` report.
        aliases: Other names that users may give; the first is the short name.
        architecture: Generation, such as "Ampere".
        chip: The die, such as "GA100".
        compute_capability: Compute capability of CUDA ("8.0"), AMD's LLVM target ("gfx90a"), or the device name of
            Intel's compiler ("bmg-g21").
        sms: Streaming multiprocessors; on AMD GPUs compute units, on Intel GPUs Xe cores.
        boost_clock_mhz: The default clock, which is assumed where none is given and at which the rates are stated.
        min_clock_mhz: Lowest graphics clock that can be set.
        max_clock_mhz: Highest graphics clock that can be set.
        memory_bytes: Size of the device memory, as sold.
        memory_bandwidth: Bytes per second.
        memory_type: Type of the device memory, such as "HBM2e".
        inline_ecc: Whether error correction keeps its check bits in the device memory itself. They take a sixteenth of
            it and a part of its bandwidth. NVIDIA's boards for data centers with GDDR5 and GDDR6 do so. It is False for
            HBM and GDDR7, which have bits for it beside the data, and for boards that are sold with it switched off.
        l2_bytes: Size of the last cache before memory, Infinity Cache aside.
        power_limit_w: Default power cap of the board.
        peak_flops: Precision -> dense FLOP/s that PyTorch can get at boost_clock_mhz: on tensor cores where it uses
            them, accumulating in fp32. A precision that is missing is not supported.
        sources: Data sheets and other sources of the figures.
        base_clock_mhz: Clock that the maker guarantees under full load.
        clock_step_mhz: Step between the clocks that can be set.
        tensor_clock_mhz: The clock at which the data sheet states tensor rates, where it is not boost_clock_mhz.
        memory_bus_bits: Width of the memory interface.
        memory_rate: Bits per second of one pin of the memory interface.
        infinity_cache_bytes: Size of AMD's Infinity Cache, which lies between L2 and memory.
        l1_bytes: Size of the L1 cache of one multiprocessor. On NVIDIA's GPUs from Volta on, shared memory is a part
            of it.
        shared_memory_bytes: Most shared memory that kernels can use on one multiprocessor.
        link_bandwidth: Bytes per second to the other GPUs of its node, in each direction, over all links together:
            NVLink, and on AMD GPUs Infinity Fabric.
        link_gpus: Most GPUs that these links join, such as 2 by a bridge; None for all of a node.
        pcie_bandwidth: Bytes per second to its host over PCI Express, in each direction.
        vector_flops: Precision -> FLOP/s at boost_clock_mhz without tensor cores.
        tensor_precisions: Precisions whose matrix products and convolutions run on tensor cores (AMD: matrix cores) in
            PyTorch; None for every precision of peak_flops but fp32.
        power_range_w: Lowest and highest power cap that can be set.
        idle_power_w: Board power without any process, measured on one board.
        idle_curve: Board power without work, by clock.
        access_energy_j: Memory level ("shared", "l1", "l2", "dram") -> joules to move 32 bytes from this level to the
            registers; None if it was not measured.
        voltage: Supply voltage by clock.
        process: Manufacturing process, such as "TSMC 7N".
        released: Year and month of the announcement, "2020-05".
    """

    name: str
    aliases: tuple[str, ...]
    architecture: str
    chip: str
    compute_capability: str
    sms: int
    boost_clock_mhz: int
    min_clock_mhz: int
    max_clock_mhz: int
    memory_bytes: int
    memory_bandwidth: float
    memory_type: str
    inline_ecc: bool
    l2_bytes: int
    power_limit_w: float
    peak_flops: Mapping[str, float]
    sources: tuple[str, ...] = ()
    base_clock_mhz: int | None = None
    clock_step_mhz: float | None = None
    tensor_clock_mhz: int | None = None
    memory_bus_bits: int | None = None
    memory_rate: float | None = None
    infinity_cache_bytes: int | None = None
    l1_bytes: int | None = None
    shared_memory_bytes: int | None = None
    link_bandwidth: float | None = None
    link_gpus: int | None = None
    pcie_bandwidth: float | None = None
    vector_flops: Mapping[str, float] | None = None
    tensor_precisions: tuple[str, ...] | None = None
    power_range_w: tuple[float, ...] | None = None
    idle_power_w: float | None = None
    idle_curve: IdleCurve | None = None
    voltage: VoltageCurve | None = None
    process: str | None = None
    released: str | None = None
    access_energy_j: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        clocks = [self.min_clock_mhz, self.base_clock_mhz, self.boost_clock_mhz, self.max_clock_mhz]
        given = [clock for clock in clocks if clock is not None]
        if given != sorted(given):
            raise InputError(
                f"the clocks of {self.name} contradict each other",
                given=", ".join(f"{clock} MHz" for clock in given),
                allowed="min_clock_mhz <= base_clock_mhz <= boost_clock_mhz <= max_clock_mhz",
            )
        if self.power_range_w is not None and not (
            len(self.power_range_w) == 2 and self.power_range_w[0] <= self.power_limit_w <= self.power_range_w[1]
        ):
            raise InputError(
                f"the power limits of {self.name} contradict each other",
                given=f"power_limit_w = {self.power_limit_w:g}, power_range_w = {list(self.power_range_w)}",
                allowed="power_range_w = [lowest, highest] around power_limit_w",
            )
        idle_w = max((self.idle_power_w or 0.0, *(() if self.idle_curve is None else self.idle_curve.power_w)))
        if idle_w >= self.power_limit_w:
            raise InputError(
                f"the powers of {self.name} contradict each other",
                given=f"power_limit_w = {self.power_limit_w:g}, {idle_w:g} W without work",
                allowed="idle_power_w, and all power_w of idle_curve, below power_limit_w",
            )

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def slug(self) -> str:
        """The name of the GPU's folders: "a30", "rtx-2080-ti"."""
        return self.aliases[0].lower().replace(" ", "-")

    @property
    def board(self) -> tuple[object, ...]:
        """The figures that tell boards apart. GPUs that agree in them are one board, whatever their names."""
        figures = ("chip", "compute_capability", "sms", "boost_clock_mhz", "memory_bytes", "memory_bandwidth")
        return tuple(getattr(self, name) for name in (*figures, "power_limit_w"))

    @property
    def is_nvidia(self) -> bool:
        """Whether it is NVIDIA's. Others run other libraries, and have LLVM targets for compute capabilities."""
        return self.compute_capability[0].isdigit()

    @property
    def has_hbm(self) -> bool:
        """Whether its memory is HBM, rather than GDDR or LPDDR."""
        return self.memory_type.startswith("HBM")

    def link(self, gpus: int) -> str:
        """What so many GPUs of a node send over: "nvlink" (or Infinity Fabric), or "pcie"."""
        return "nvlink" if self.link_bandwidth and gpus <= (self.link_gpus or gpus) else "pcie"

    @property
    def unquantized(self) -> tuple[str, ...]:
        """The supported precisions of at least 16 bits."""
        return tuple(precision for precision in self.peak_flops if precision not in QUANTIZED)

    def running_precision(self, precision: str) -> str:
        """The precision that an operation asking for `precision` really runs in here.

        TF32 is a permission: a GPU that lacks it runs fp32 instead. Half precision is a type of tensors, so a GPU that
        lacks it cannot run the operation. Raises InputError: the GPU does not support the precision.
        """
        if precision in self.peak_flops:
            return precision
        if precision == "tf32":
            return "fp32"
        if precision == "fp64":
            raise InputError(
                f"the fp64 rate of {self.name} is not in the catalogue",
                given=precision,
                allowed=", ".join(self.peak_flops),
                hint="convert the model with .float(), or choose a GPU for fp64, such as A100 or H100",
            )
        raise InputError(
            f"{self.name} does not support {precision}",
            given=precision,
            allowed=", ".join(self.peak_flops),
            hint="give another precision, or a GPU that has it",
        )

    def flops_per_cycle(self, precision: str) -> float:
        """FLOPs of a multiprocessor per cycle, in a precision of `peak_flops`."""
        return self.peak_flops[precision] / self.sms / ((self.tensor_clock_mhz or self.boost_clock_mhz) * 1e6)

    def on_tensor_cores(self, precision: str) -> bool:
        """Whether matrix products and convolutions that ask for `precision` run on tensor (AMD: matrix) cores here.

        Raises InputError: the GPU does not support the precision.
        """
        running = self.running_precision(precision)
        return running != "fp32" if self.tensor_precisions is None else running in self.tensor_precisions

    @property
    def generation(self) -> float:
        """The compute capability as a number; for other makers' GPUs, that of NVIDIA's GPUs of the same time.

        Boards of one family in CUDA (compute_100f, compute_120f) run the same kernels, and are of one generation.
        """
        try:
            return float(_FAMILIES.get(self.compute_capability, self.compute_capability))
        except ValueError:
            return _AMD_GENERATIONS.get(self.compute_capability, _OTHER_GENERATION)

    def checked_clock_mhz(self, clock_mhz: float | None) -> float:
        """The clock to assume: the one given, or the default (boost) clock.

        Raises InputError: the GPU cannot hold this clock.
        """
        if clock_mhz is None:
            return float(self.boost_clock_mhz)
        if not is_number(clock_mhz, self.min_clock_mhz, self.max_clock_mhz):
            raise InputError(
                f"{self.name} cannot hold this graphics clock",
                given=f"{shown(clock_mhz)} MHz",
                allowed=f"{self.min_clock_mhz} to {self.max_clock_mhz} MHz",
                hint=f"omit the clock to use the default, {self.boost_clock_mhz} MHz",
            )
        return float(clock_mhz)

    def checked_power_limit_w(self, power_limit_w: float | None) -> float:
        """The power cap to assume: the one given, or the board's default.

        Where the catalogue does not know which caps can be set, they reach from idle power to the default. A cap above
        the highest that can be set does not bind: the board keeps it at its highest limit, which is returned. Raises
        InputError: the board cannot be capped so low, or the cap is no number.
        """
        if power_limit_w is None:
            return float(self.power_limit_w)
        idle_w = self.idle_power_w if self.idle_curve is None else self.idle_curve.at(self.min_clock_mhz)
        lowest, highest = self.power_range_w or (idle_w or _LEAST_CAP * self.power_limit_w, self.power_limit_w)
        if not is_number(power_limit_w, lowest, sys.float_info.max):
            raise InputError(
                f"the power of {self.name} cannot be capped at this value",
                given=f"{shown(power_limit_w)} W",
                allowed=f"{lowest:g} to {highest:g} W; a higher cap is met by any board",
                hint=f"omit the power limit to use the default, {self.power_limit_w:g} W",
            )
        return float(min(power_limit_w, highest))
