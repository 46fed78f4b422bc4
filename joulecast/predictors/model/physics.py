"""The least device time of kernels on a GPU, from its data sheet and a few constants.

A library cuts a product into tiles. It chooses the tile, and the number of parts of a split reduction, so that the
time is least. A multiprocessor computes a tile at the rate of its unit, or as quickly as the operands of the tile
arrive, and tiles run in whole waves. Bytes pass the memory, or the L2 cache if it holds what a loop uses. Lines of
norms and softmax are computed one by one by the blocks that a multiprocessor holds. These parts overlap, but not
perfectly (their p-norm), and starting a kernel comes on top. Long products meet the power cap, which lowers the
clock.

The same function serves linear layers, batched products, attention, decoding, experts and convolutions: what differs is
their work (work.py). The constants of a group of kernels are fitted to the measurements of all GPUs together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES, HALF_BYTES, PRECISIONS
from ..physics.bandwidth import reached_bandwidth
from ..physics.energy import process_factor
from ..physics.roofline import precision_table
from ..physics.tiling import padded
from .basis import generation_of
from .work import ATTENTION, BACKWARD, DECODING, EXPERTS, GROUPS, IMPLEMENTATIONS, PRODUCT, WIDTHS, Work


class Constant(NamedTuple):
    """A positive constant of physics, fitted to measurements.

    Args:
        name: Name that ends in the unit.
        start: Value from which the fit starts, and towards which it is drawn.
        spread: Standard deviation of its logarithm around `start`.
    """

    name: str
    start: float
    spread: float


CONSTANTS: tuple[Constant, ...] = (
    # Seconds of starting the first kernel, and of each further one.
    Constant("launch_s", 2.5e-6, 0.7),
    Constant("tile_cycles", 1500.0, 0.7),
    Constant("share_of_peak", 0.8, 0.4),
    # FLOPs that a multiprocessor computes at its full rate while one byte of operands is loaded for them.
    Constant("flops_per_loaded_byte", 55.0, 0.5),
    Constant("split_cycles", 3000.0, 0.7),
    Constant("exposed_exponentials", 0.6, 0.4),
    Constant("share_of_bandwidth", 0.85, 0.25),
    Constant("l2_bytes_per_sm_cycle", 12.0, 0.8),
    Constant("working_sets", 4.0, 0.7),
    # One step of a line: waiting for what a block reads at once.
    Constant("line_cycles", 1500.0, 0.7),
    # On a multiprocessor with the reference rate, at 7 nm.
    Constant("picojoules_per_flop", 2.0, 0.25),
    Constant("burst_s", 3e-4, 0.7),
)
"""The constants of each group of kernels, in the order in which `Costs` takes them."""

WAYS: tuple[str, ...] = (
    "lanes",
    "tensor cores",
    "triton",
    "tensorrt_llm",
    "each head by itself",
    "cutlass",
    "flash attention 2",
)
"""What computes a kernel: the lanes of a multiprocessor, or its tensor cores as the library at hand uses them."""

LANES, TENSOR_CORES, TRITON, TENSORRT_LLM, EACH_HEAD, CUTLASS, FLASH_2 = range(len(WAYS))

STARTS: FloatArray = np.array([[[[each.start for each in CONSTANTS]] * len(WIDTHS)] * len(WAYS)] * len(GROUPS))
_OTHER_STARTS: Mapping[tuple[str, str], Mapping[str, float]] = {
    # Lanes compute a tenth as many FLOPs per cycle as tensor cores, with nearly the same loads, and more energy for
    # each.
    ("", "lanes"): {"picojoules_per_flop": 3.0, "flops_per_loaded_byte": 10.0},
    # Engines plan attention in a kernel before it. A tile loads its queries first, and reads keys more than once.
    ("attention", ""): {"launch_s": 8e-6, "tile_cycles": 5500.0, "share_of_peak": 0.67, "share_of_bandwidth": 0.5},
    # Products of Triton's kernels take 1.5 to 3 times as long as those of other libraries.
    ("attention", "triton"): {"share_of_peak": 0.33},
    ("decoding", ""): {"launch_s": 8e-6},
    ("experts", ""): {"share_of_peak": 0.5, "launch_s": 6e-6},
}
for (_group, _way), _values in _OTHER_STARTS.items():
    for _name, _value in _values.items():
        _groups = [place for place, name in enumerate(GROUPS) if _group in ("", name)]
        _ways = [place for place, name in enumerate(WAYS) if _way in ("", name)]
        STARTS[np.ix_(_groups, _ways, range(len(WIDTHS)), [[c.name for c in CONSTANTS].index(_name)])] = _value
"""The constants of all groups and ways before any fit, shape (groups, ways, constants)."""

TILES: FloatArray = np.array(
    [
        (256, 128),
        (128, 256),
        (128, 128),
        (128, 64),
        (64, 128),
        (64, 64),
        (64, 32),
        (32, 64),
        (32, 128),
        (128, 32),
        (16, 128),
        (128, 16),
    ],
    dtype=float,
)
"""Rows and columns of the tiles that libraries choose from, shape (tiles, 2)."""

_BATCHED_TILES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "6": ((64, 128),),
    "7": ((64, 64), (128, 32), (32, 128)),
    "8": ((128, 128),),
}
"""First digit of a generation -> the tiles of batched products on lanes, by the names of the kernels that NeuSight (Lee
et al., ASPLOS 2025) recorded; later generations are taken to run Ampere's."""

_SPLITS: FloatArray = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_LEAST_REDUCTION = 64.0  # Least number of steps in a part of a split reduction.
_FEWEST_STEPS = 32.0  # A shorter reduction takes as long as this many steps.
_PARTIAL_BYTES = 8.0  # A partial sum in fp32 is written once and read once.
# How sharply the share of hits falls where the working set outgrows the L2: sharply for products, whose loops hold
# several sets of weights, and so gently for others that twice the data never take more than four times the time.
_STEEPNESS, _STREAM_STEEPNESS = 4, 2
_REFERENCE_RATE = 1024.0  # FLOPs per cycle of the multiprocessor for which rates of loading and energies are stated.
_READ_BYTES = 16.0  # Bytes that a thread reads at once.
_LINE_START = 2.5  # Starting a line and adding up what its threads found take as long as this many steps.
# Threads that a multiprocessor holds (CUDA C++ Programming Guide, table of technical specifications).
_FEWER_THREADS, _THREADS = {"7.5": 1024, "8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536, "12.1": 1536}, 2048
_LANE_RATE = 300.0  # Multiprocessors compute fewer FLOPs per cycle on lanes, more on tensor cores.
_STATIC_SHARE = 0.2  # Share of the power cap that a board draws without work, about.
# FLOPs per cycle and multiprocessor of half precision by the newest instructions that Triton's kernels use: attention
# those of Ampere, products those of Hopper.
_TRITON_ATTENTION_RATE, _TRITON_PRODUCT_RATE = 1024.0, 4096.0
# CUDA C++ Programming Guide, throughput of native instructions: the same on all GPUs since Volta. Blackwell Ultra has
# twice as many units (NVIDIA, "Making Softmax More Efficient with NVIDIA Blackwell Ultra").
_EXPONENTIALS, _MORE_EXPONENTIALS = 16.0, {"10.3": 32.0}
_PYTORCH, _FLASHINFER, _TENSORRT_LLM, _VLLM, _CUDNN, _BY_TRITON = (
    IMPLEMENTATIONS.index(name) for name in ("pytorch", "flashinfer", "tensorrt_llm", "vllm", "cudnn", "triton")
)
_ELEMENT_BYTES: FloatArray = np.array([ELEMENT_BYTES[precision] for precision in PRECISIONS])
_AMPERES, _HOPPER, _BLACKWELL = "8.0", "9.0", "10.0"
# GPUs without the asynchronous products of Hopper and data-center Blackwell, for which SGLang calls Triton if a model
# has images, attention sinks (heads of 64) or heads of 192. Measured on the L40S (8.9); 12.0 has the same instructions.
_TRITON_OFTEN = ("8.9", "12.0")
TILE = 128.0
"""Queries in a tile of attention, and keys in a block."""

# Kernels compute heads in multiples of 32 elements; Triton's pad them to a power of two, and compute a head of 192 in
# two parts. Measured on the L40S: they take as long for heads of 72 and 80 elements as for 128.
_HEAD_STEP, _TWO_PARTS = 32.0, 192.0
# FLOPs per cycle and multiprocessor of an A100, whose instructions FlashAttention 2 uses. Published forwards with heads
# of 128 reach 1480 on an A100 (arXiv 2307.08691, 4.1), 1290 to 1600 on an H100 (pytorch issue 142132, flash-attention
# pull request 1791) and 1240 on a B200 (tritonbench pull request 171). The peaks are 2048, 4096 and 8192.
_AMPERE = 2048.0
# FLOPs per second of the backward over those of the forward in long sequences. With heads of 128, FlashAttention 2 has
# 0.79 (full) and 1.01 (causal) on an H100, and FlashAttention 3 0.84 (flash-attention pull request 1791). It is 0.86 on
# an A100 (arXiv 2307.08691: 63 and 73 % of the peak), and with heads of 64 0.88 on a B200 (flash-attention issue 1589)
# and 0.97 on an RTX A5000 (gpu-mode/ring-attention issue 10). It has five products where the forward has two.
_BACKWARD_RATE, _BACKWARD_PRODUCTS = 0.88, 2.5
# FlashAttention 2 is 1.3 to 2.5 times as quick as the first FlashAttention in Triton (arXiv 2307.08691, 4.1): the
# geometric mean. Older GPUs run the memory-efficient kernels of xformers, which take 1.2 to 1.7 times as long as
# FlashAttention 2 in the forward and 1.9 to 3.5 times in the backward (flash-attention issue 416): geometric means.
_FIRST_IN_TRITON, _EFFICIENT, _EFFICIENT_BACKWARD = 1.8, 1.5, 2.4
_BEFORE_FLASH_2 = ("5", "6", "7")  # First numbers of compute capabilities of NVIDIA that it does not run on.
_MOST_SHARING = 32  # Measured: groups of 48 heads take 6 to 7 times as long as groups of 32.
_OVERLAP = 3.0
_AT_ONCE = 20_000  # Kernels whose tiles are computed together, so that arrays stay in the cache of a CPU.


class Machine(NamedTuple):
    """The figures of a GPU that decide how long kernels take.

    Args:
        sms: Number of multiprocessors.
        clock_hz: Clock for which rates are stated, in Hz.
        flops_per_cycle: FLOPs per cycle and multiprocessor, for each of PRECISIONS, shape (precisions,).
        bandwidth: Bytes per second of the memory, by the data sheet.
        copied: Bytes per second that copies reach. Reading alone, as products of few rows do, comes closer to the data
            sheet where the memory stores its own error correction (0.87 on an L40S, where copies reach 0.76).
        l2_bytes: Bytes of the last cache.
        unit: LANES or TENSOR_CORES for each of PRECISIONS, shape (precisions,).
        generation: Compute capability that the GPU's kernels were made for.
        exponentials: Exponentials per cycle of one multiprocessor.
        threads: Threads that a multiprocessor holds.
        logic_power_w: Watts of the default power cap that are left for work, on a chip of a 7 nm process.
    """

    sms: float
    clock_hz: float
    flops_per_cycle: FloatArray
    unit: NDArray[np.int64]
    generation: str
    bandwidth: float
    copied: float
    l2_bytes: float
    exponentials: float
    threads: float
    logic_power_w: float

    @classmethod
    def of(cls, gpu: GPU) -> Self:
        """The figures of a GPU; rates of precisions that it lacks are NaN."""
        clock_hz = (gpu.tensor_clock_mhz or gpu.boost_clock_mhz) * 1e6
        rates = precision_table(gpu, lambda precision: gpu.peak_flops[gpu.running_precision(precision)])
        units = np.nan_to_num(precision_table(gpu, gpu.on_tensor_cores)).astype(np.int64)
        return cls(
            sms=float(gpu.sms),
            clock_hz=clock_hz,
            flops_per_cycle=rates / gpu.sms / clock_hz,
            unit=units,
            generation=generation_of(gpu),
            bandwidth=gpu.memory_bandwidth,
            copied=reached_bandwidth(gpu),
            l2_bytes=float(gpu.l2_bytes),
            exponentials=_MORE_EXPONENTIALS.get(gpu.compute_capability, _EXPONENTIALS),
            threads=float(_FEWER_THREADS.get(gpu.compute_capability, _THREADS)),
            logic_power_w=gpu.power_limit_w * (1 - _STATIC_SHARE) / process_factor(gpu),
        )


class Costs(NamedTuple):
    """Least seconds of kernels at the default clock and the parts that they consist of, each of shape (kernels,).

    Args:
        compute_s: Computing, in whole waves of tiles, under the power cap as far as a loop meets it.
        memory_s: Bytes through the memory or the L2 cache.
        line_s: Lines that are computed one by one.
        passed_s: Point-wise kernels before and after.
        launch_s: Starting the kernels.
        waves: Waves of the tiles that were chosen.
        fill: Share of the chosen tiles' work, with their last wave, that is not padding.
        splits: Parts into which the reduction is split.
        burst_s: Computing, without a power cap.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    line_s: FloatArray
    passed_s: FloatArray
    launch_s: FloatArray
    waves: FloatArray
    fill: FloatArray
    splits: FloatArray
    burst_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """Least seconds of each kernel."""
        return self._with(self.compute_s)

    @property
    def uncapped_s(self) -> FloatArray:
        """Least seconds of each kernel if no power cap lowered the clock."""
        return self._with(self.burst_s)

    def _with(self, compute_s: FloatArray) -> FloatArray:
        overlapped = (compute_s**_OVERLAP + self.memory_s**_OVERLAP + self.line_s**_OVERLAP) ** (1 / _OVERLAP)
        found: FloatArray = overlapped + self.passed_s + self.launch_s
        return found


def costs(work: Work, machine: Machine, constants: FloatArray) -> Costs:
    """Least times of kernels on a GPU.

    Args:
        work: The kernels.
        machine: The GPU.
        constants: Values of CONSTANTS for each group, way and width, shape (groups, ways, widths, constants).
    """
    ways = way(work, machine)
    mine = constants[work.group, ways, work.width].T
    launch, tile, peak, loaded, split, exposed, share, l2_rate, sets, line, picojoules, burst_s = mine
    rate = machine.flops_per_cycle[work.precision]
    # Experts' kernels use no newer instructions than those of Hopper, attention's lie half way to those of Ampere.
    newest = np.where(
        work.group == EXPERTS,
        _TRITON_PRODUCT_RATE * HALF_BYTES / work.in_bytes.clip(1e-3),
        np.sqrt(_TRITON_ATTENTION_RATE * rate),
    )
    rate = np.where(ways == TRITON, np.minimum(rate, newest), rate)
    by_itself = np.where(ways == EACH_HEAD, work.sharing, 1.0)
    called = work._replace(batch=work.batch * by_itself, rows=work.rows / by_itself)
    l2_rate = l2_rate * np.sqrt(np.maximum(rate, _REFERENCE_RATE) / _REFERENCE_RATE)
    cycles, waves, fill, splits = _tiled(
        called, machine, rate, ways, np.array([tile, peak, loaded, split, exposed, l2_rate])
    )
    quick_s = cycles / machine.clock_hz
    compute_s = _capped_s(quick_s, work.flops, machine, rate, picojoules, burst_s)
    held = sets * work.held_bytes + work.moved_bytes - work.held_bytes
    bandwidth = share * np.where(work.rows > 0, machine.bandwidth, machine.copied)
    steepness = np.where(work.rows > 0, _STEEPNESS, _STREAM_STEEPNESS)
    memory_s = _moving_s(work.moved_bytes, held, machine, bandwidth, l2_rate, steepness)
    whole = held + work.passed_bytes
    passed_s = _moving_s(work.passed_bytes, whole, machine, share * machine.copied, l2_rate, steepness)
    waits = work.line_threads > 0
    steps = np.ceil(work.line_bytes / (_READ_BYTES * np.maximum(work.line_threads, 1.0)))
    turns = np.maximum(work.lines * work.line_threads / (machine.sms * machine.threads), waits)
    line_s = turns * line * (_LINE_START + steps) * waits / machine.clock_hz
    launch_s = launch * (0.5 + 0.5 * work.launches)
    return Costs(compute_s, memory_s, line_s, passed_s, launch_s, waves, fill, splits, quick_s)


def way(work: Work, machine: Machine) -> NDArray[np.int64]:
    """Index into WAYS for each kernel, shape (kernels,).

    Measured by aiconfigurator (commit 095f58a), which names the kernels that were called. SGLang, like PyTorch, calls
    FlashAttention or FlashInfer, and Triton where these do not support an operation. TensorRT-LLM has kernels of its
    own; before Blackwell, its decoding shares keys among 2 to 32 heads, and for other groups each head reads its keys
    by itself. Experts are computed by Triton, but where FlashInfer was asked for.
    """
    found = machine.unit[work.precision]
    engine, generation = work.implementation, machine.generation
    trt = engine == _TENSORRT_LLM
    own = trt | (engine == _VLLM) | (engine == _CUDNN)
    attention, decoding = work.group == ATTENTION, work.group == DECODING
    head, width = work.columns / 2, _ELEMENT_BYTES[work.precision]
    narrow, windowed = work.in_bytes < width, work.window < work.span
    if generation in _TRITON_OFTEN:
        triton = (head == 64) | (head == 192) | (attention & ((work.causal == 0) | (width < HALF_BYTES)))
    elif generation == _HOPPER:
        triton = (head == 512) | ((head == 256) & windowed) | (attention & narrow)
    else:
        triton = (generation == _BLACKWELL) & ((head == 192) | (attention & narrow & (head != 128)))
    triton = (attention | decoding) & triton & ~own
    triton |= (work.group == EXPERTS) & (engine != _FLASHINFER)
    alone = decoding & trt & ((work.sharing == 1) | (work.sharing > _MOST_SHARING)) & (generation != _BLACKWELL)
    found = np.where((attention | decoding | (work.group == PRODUCT)) & trt, TENSORRT_LLM, found)
    found = np.where(alone, EACH_HEAD, found)
    # FlashInfer calls CUTLASS for experts on Hopper, and kernels of TensorRT-LLM on Blackwell.
    found = np.where((work.group == EXPERTS) & (engine == _FLASHINFER) & (generation == _HOPPER), CUTLASS, found)
    found = np.where(triton & (found != LANES), TRITON, found)
    by_pytorch = np.isin(engine, (_PYTORCH, _BY_TRITON)) | ((generation == _AMPERES) & ~own)
    ways: NDArray[np.int64] = np.where(attention & by_pytorch & (width == HALF_BYTES), FLASH_2, found)
    return ways


def _moving_s(
    moved: FloatArray,
    held: FloatArray,
    machine: Machine,
    bandwidth: FloatArray,
    l2_rate: FloatArray,
    steepness: FloatArray,
) -> FloatArray:
    """Seconds to move bytes through the L2 cache, as far as it holds what a loop uses, or through the memory."""
    cached = 1 / (1 + (held / machine.l2_bytes) ** steepness)
    rate = l2_rate * machine.sms * machine.clock_hz
    seconds: FloatArray = moved * ((1 - cached) / bandwidth + cached / rate)
    return seconds


def _capped_s(
    compute_s: FloatArray,
    flops: FloatArray,
    machine: Machine,
    rate: FloatArray,
    picojoules: FloatArray,
    burst_s: FloatArray,
) -> FloatArray:
    """Seconds of products in a loop whose clock falls until the board draws its cap.

    The larger the products that a multiprocessor computes in a cycle, the fewer operands it loads for each FLOP, so the
    energy of a FLOP falls with the square root of its rate (products over 1e12 FLOPs on L40S, A100, H100, H200, B200
    and GB200 follow this within 15 %).
    """
    energy_j = flops * picojoules * 1e-12 * np.sqrt(_REFERENCE_RATE / rate)
    slower = np.maximum(energy_j / machine.logic_power_w / np.maximum(compute_s, 1e-12), 1.0)
    capped: FloatArray = compute_s * (1 + (slower - 1) * compute_s / (compute_s + burst_s))
    return capped


def _tiled(
    work: Work, machine: Machine, rate: FloatArray, ways: NDArray[np.int64], constants: FloatArray
) -> Iterator[FloatArray]:
    """Cycles, waves, fill and splits of the quickest choice of tile and split; zeros for kernels without a product."""
    found = np.zeros((4, len(work.place)))
    found[1:] = 1.0
    attended = np.flatnonzero(work.group == ATTENTION)
    found[:3, attended] = _attended(
        work.some(attended), machine, rate[attended], ways[attended], constants[:, attended]
    )
    products = np.flatnonzero((work.rows > 0) & (work.group != ATTENTION))
    for first in range(0, len(products), _AT_ONCE):
        some = products[first : first + _AT_ONCE]
        found[:, some] = _quickest(work.some(some), machine, rate[some], constants[:, some])
    yield from found


def _attended(
    work: Work, machine: Machine, rate: FloatArray, ways: NDArray[np.int64], constants: FloatArray
) -> FloatArray:
    """Cycles, waves and fill of attention with many queries, shape (3, kernels).

    A kernel like FlashAttention (Dao, arXiv 2307.08691) gives each multiprocessor tiles of 128 queries, which pass over
    the keys that they may see in blocks of 128. For each pair of a query and a key it computes two products and one
    exponential. Kernels that cannot skip what is outside a window compute it. One tile may hold the queries of all
    heads that share keys; the quicker of both is called.
    """
    tile, peak, _, _, exposed, _ = constants
    by_triton, flash_2 = ways == TRITON, ways == FLASH_2
    skips = (ways == TENSORRT_LLM) | np.isin(work.implementation, (_VLLM, _CUDNN))
    skips |= (ways == TENSOR_CORES) & (machine.generation in (_HOPPER, _BLACKWELL))
    window = np.where(skips, work.window, work.span)
    half = work.columns / 2
    power = np.where(half == _TWO_PARTS, half, np.exp2(np.ceil(np.log2(np.maximum(half, 1.0)))))
    head = 2 * np.where(by_triton, power, padded(half, _HEAD_STEP))
    # What FlashAttention 2 loses beside the products costs as many cycles per FLOP on all GPUs as on Ampere.
    product = np.where(flash_2, 1 / np.minimum(rate, _AMPERE) + (1 / peak - 1) / _AMPERE, 1 / (rate * peak))
    back = work.part == BACKWARD
    pair = 2 * head * product + np.where(back, _BACKWARD_PRODUCTS, 1.0) * exposed / machine.exponentials
    pair = pair * np.where(flash_2, _over_flash_2(work, machine), 1.0) / np.where(back, _BACKWARD_RATE, 1.0)
    queries = work.rows / work.sharing
    found = []
    for together in (work.sharing, np.ones(len(queries))):
        rows, batch = queries * together, work.batch * work.sharing / together
        tall = np.where(rows > TILE / 2, TILE, np.where(rows > TILE / 8, TILE / 2, TILE / 8))
        in_head = np.ceil(rows / tall)
        each = np.clip(np.ceil(tall / together), 1.0, np.maximum(queries, 1.0))
        longest = padded(np.minimum(work.span, window + each - 1), TILE)
        # A causal tile sees the keys up to its last query. Each further tile sees more, until the window is full.
        least = padded(np.minimum(np.maximum(work.span - queries + each, 1.0), longest), TILE)
        growing = np.minimum(np.ceil((longest - least) / each), in_head)
        growth = (growing * (least + longest) / 2 + (in_head - growing) * longest) / in_head
        waves = batch * in_head / machine.sms
        average, most = (tall * keys * pair + tile for keys in (np.where(work.causal > 0, growth, longest), longest))
        # At least the longest tile; otherwise half way between work that is spread evenly and whole waves of tiles.
        cycles = np.maximum(np.maximum(waves * average, most), (waves + np.ceil(waves)) / 2 * average)
        found.append((cycles, waves, rows / (in_head * tall) * waves / np.ceil(waves)))
    packed, single = found
    quicker: FloatArray = np.where(packed[0] <= single[0], packed, single)
    return quicker


def _over_flash_2(work: Work, machine: Machine) -> FloatArray:
    """Time of pairs of query and key in the kernels that PyTorch calls, over that in FlashAttention 2, (kernels,)."""
    older = machine.generation.partition(".")[0] in _BEFORE_FLASH_2
    efficient = np.where(work.part == BACKWARD, _EFFICIENT_BACKWARD, _EFFICIENT) if older else 1.0
    found: FloatArray = np.where(work.implementation == _BY_TRITON, _FIRST_IN_TRITON, efficient)
    return found


def _may(work: Work, machine: Machine) -> NDArray[np.bool_]:
    """Whether the library has a tile for a kernel, shape (tiles, kernels): few for batched products on lanes."""
    digit = machine.generation.split(".")[0]
    some = _BATCHED_TILES.get(digit, _BATCHED_TILES["8"])
    listed = np.array([tuple(tile) in some for tile in TILES.astype(int).tolist()])
    batched = (work.held_bytes == 0) & (machine.unit[work.precision] == LANES) & (digit.isdigit())
    possible: NDArray[np.bool_] = ~(batched & (work.group == PRODUCT))[None] | listed[:, None]
    return possible


def _quickest(work: Work, machine: Machine, rate: FloatArray, constants: FloatArray) -> FloatArray:
    tile, peak, loaded, split, exposed, l2_rate = constants
    tall, wide, splits = TILES[:, 0, None, None], TILES[:, 1, None, None], _SPLITS[:, None]
    steps = np.maximum(work.reduction / splits, _FEWEST_STEPS)
    tiles = np.ceil(work.rows / tall) * np.ceil(work.columns / wide) * work.batch
    waves = tiles * splits / machine.sms
    operands = (work.loads_rows * tall + wide) * work.in_bytes * steps
    loading = operands * loaded / rate
    computing = 2 * tall * wide * steps / (
        rate * peak * np.sqrt(np.where(rate < _LANE_RATE, work.saved, 1.0))
    ) + exposed * work.exponentials * tall * steps / (machine.exponentials * np.ceil(work.columns / wide))
    sums = split + waves * tall * wide * _PARTIAL_BYTES / l2_rate
    whole = np.ceil(waves)
    cycles = whole * (np.maximum(computing, loading) + tile) + np.where(splits > 1, sums, 0.0)
    possible = (splits == 1) | (work.reduction / splits >= _LEAST_REDUCTION)
    cycles = np.where(possible & _may(work, machine)[:, None], cycles, np.inf)
    shape = (len(TILES) * len(_SPLITS), -1)
    cycles, waves = cycles.reshape(shape), waves.reshape(shape)
    taken = cycles.argmin(axis=0)
    each = np.arange(len(work.place))
    chosen = waves[taken, each]
    area = TILES.prod(axis=1)[taken // len(_SPLITS)]
    outputs = work.batch * work.rows * work.columns
    fill = outputs * _SPLITS[taken % len(_SPLITS)] / (np.ceil(chosen) * machine.sms * area)
    return np.array([cycles[taken, each], chosen, fill, _SPLITS[taken % len(_SPLITS)]])
