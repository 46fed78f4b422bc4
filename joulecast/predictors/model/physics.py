"""The least device time of kernels on a GPU, from its data sheet and a few constants.

A library cuts a product into tiles. It chooses the tile, and the number of parts of a split reduction, so that the
time is least. A multiprocessor computes a tile at the rate of its unit, or as quickly as the operands of the tile
arrive, and tiles run in whole waves. Bytes pass the memory, or the L2 cache if it holds what a loop uses. These parts
overlap, but not perfectly (their p-norm), and starting a kernel comes on top. Long products meet the power cap, which
lowers the clock.

The same function serves linear layers, batched products, attention, decoding, experts and convolutions: what differs is
their work (work.py). The constants of a group of kernels are fitted to the measurements of all GPUs together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...operations.attributes import HALF_BYTES
from .machine import EACH_HEAD, TRITON, WAYS, Machine, way
from .tiles import tiled_cycles
from .work import EXPERTS, GROUPS, WIDTHS, Work


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
    # On a multiprocessor with the reference rate, at 7 nm.
    Constant("picojoules_per_flop", 2.0, 0.25),
    Constant("burst_s", 3e-4, 0.7),
)
"""The constants of each group of kernels, in the order in which `Costs` takes them."""

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

# How sharply the share of hits falls where the working set outgrows the L2: sharply for products, whose loops hold
# several sets of weights, and so gently for others that twice the data never take more than four times the time.
_STEEPNESS, _STREAM_STEEPNESS = 4, 2
_REFERENCE_RATE = 1024.0  # FLOPs per cycle of the multiprocessor for which rates of loading and energies are stated.
# FLOPs per cycle and multiprocessor of half precision by the newest instructions that Triton's kernels use: attention
# those of Ampere, products those of Hopper.
_TRITON_ATTENTION_RATE, _TRITON_PRODUCT_RATE = 1024.0, 4096.0
_OVERLAP = 3.0


class Costs(NamedTuple):
    """Least seconds of kernels at the default clock and the parts that they consist of, each of shape (..., kernels).

    Args:
        compute_s: Computing, in whole waves of tiles, under the power cap as far as a loop meets it.
        memory_s: Bytes through the memory or the L2 cache.
        passed_s: Point-wise kernels before and after.
        launch_s: Starting the kernels.
        waves: Waves of the tiles that were chosen.
        fill: Share of the chosen tiles' work, with their last wave, that is not padding.
        splits: Parts into which the reduction is split.
        burst_s: Computing, without a power cap.
        product_j: Joules of the products.
        settling_s: Seconds of computing after which the cap lowers the clock half way.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    passed_s: FloatArray
    launch_s: FloatArray
    waves: FloatArray
    fill: FloatArray
    splits: FloatArray
    burst_s: FloatArray
    product_j: FloatArray
    settling_s: FloatArray

    def under(self, logic_power_w: FloatArray | float) -> Costs:
        """The costs on the same board with another power cap, which leaves these watts for work; infinite for none."""
        return self._replace(compute_s=_capped_s(self.burst_s, self.product_j, logic_power_w, self.settling_s))

    @property
    def time_s(self) -> FloatArray:
        """Least seconds of each kernel."""
        overlapped = (self.compute_s**_OVERLAP + self.memory_s**_OVERLAP) ** (1 / _OVERLAP)
        found: FloatArray = overlapped + self.passed_s + self.launch_s
        return found


def costs(work: Work, machine: Machine, constants: FloatArray) -> Costs:
    """Least times of kernels on a GPU.

    Constants are those of CONSTANTS, shape (groups, ways, widths, constants).
    """
    ways = way(work, machine)
    mine = np.moveaxis(constants[work.group, ways, work.width], -1, 0)
    launch, tile, peak, loaded, split, exposed, share, l2_rate, sets, picojoules, burst_s = mine
    rate, full = (each[..., work.precision] for each in (machine.flops_per_cycle, machine.full_flops_per_cycle))
    # Experts' kernels use no newer instructions than those of Hopper, attention's lie half way to those of Ampere.
    newest = np.where(
        work.group == EXPERTS,
        _TRITON_PRODUCT_RATE * HALF_BYTES / work.in_bytes.clip(1e-3),
        np.sqrt(_TRITON_ATTENTION_RATE * full),
    )
    rate, full = (np.where(ways == TRITON, np.minimum(each, newest), each) for each in (rate, full))
    by_itself = np.where(ways == EACH_HEAD, work.sharing, 1.0)
    called = work._replace(batch=work.batch * by_itself, rows=work.rows / by_itself)
    l2_rate = l2_rate * np.sqrt(np.maximum(full, _REFERENCE_RATE) / _REFERENCE_RATE)
    cycles, waves, fill, splits = tiled_cycles(
        called, machine, rate, full, ways, np.array([tile, peak, loaded, split, exposed, l2_rate])
    )
    quick_s = cycles / machine.clock_hz
    # The larger the products that a multiprocessor computes in a cycle, the fewer operands it loads for each FLOP, so
    # the energy of a FLOP falls with the square root of the rate that it is built for (products over 1e12 FLOPs on
    # L40S, A100, H100, H200, B200 and GB200 follow this within 15 %). Boards sold with a lower rate compute the same.
    product_j = work.flops * picojoules * 1e-12 * np.sqrt(_REFERENCE_RATE / full)
    compute_s = _capped_s(quick_s, product_j, machine.logic_power_w, burst_s)
    held = sets * work.held_bytes + work.moved_bytes - work.held_bytes
    bandwidth = share * np.where(work.rows > 0, machine.bandwidth, machine.copied)
    steepness = np.where(work.rows > 0, _STEEPNESS, _STREAM_STEEPNESS)
    memory_s = _moving_s(work.moved_bytes, held, machine, bandwidth, l2_rate, steepness)
    whole = held + work.passed_bytes
    passed_s = _moving_s(work.passed_bytes, whole, machine, share * machine.copied, l2_rate, steepness)
    launch_s = launch * (0.5 + 0.5 * work.launches)
    return Costs(compute_s, memory_s, passed_s, launch_s, waves, fill, splits, quick_s, product_j, burst_s)


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
    quick_s: FloatArray, product_j: FloatArray, logic_power_w: FloatArray | float, settling_s: FloatArray
) -> FloatArray:
    """Seconds of products in a loop whose clock falls until the board draws its cap; see `Costs`."""
    slower = np.maximum(product_j / logic_power_w / np.maximum(quick_s, 1e-12), 1.0)
    capped: FloatArray = quick_s * (1 + (slower - 1) * quick_s / (quick_s + settling_s))
    return capped
