"""How a product is cut into tiles: the quickest choice of tile, and of parts of a split reduction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from .attention import attended_cycles
from .machine import Machine
from .work import ATTENTION, PRODUCT, Work

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

_SPLITS: FloatArray = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_LEAST_REDUCTION = 64.0  # Least number of steps in a part of a split reduction.
_FEWEST_STEPS = 32.0  # A shorter reduction takes as long as this many steps.
_PARTIAL_BYTES = 8.0  # A partial sum in fp32 is written once and read once.
_LANE_RATE = 300.0  # Multiprocessors compute fewer FLOPs per cycle on lanes, more on tensor cores.
_AT_ONCE = 20_000  # Kernels whose tiles are computed together, so that arrays stay in the cache of a CPU.


def tiled_cycles(
    work: Work, machine: Machine, rate: FloatArray, full: FloatArray, ways: NDArray[np.int64], constants: FloatArray
) -> Iterator[FloatArray]:
    """Cycles, waves, fill and splits of the quickest choice of tile and split, each of shape (..., kernels).

    Kernels without a product have no cycles. Those on several GPUs stand in a row, GPU after GPU.
    """
    shape, count = rate.shape, rate.shape[-1]
    if len(shape) > 1:
        work = Work(*(np.broadcast_to(column, shape).ravel() for column in work))  # type: ignore[arg-type]
        rate, full, ways, constants = rate.ravel(), full.ravel(), ways.ravel(), constants.reshape(len(constants), -1)
    found = np.zeros((4, len(work.place)))
    found[1:] = 1.0
    attended = np.flatnonzero(work.group == ATTENTION)
    if len(attended):
        its = machine.of_kernels(attended // count)
        found[:3, attended] = attended_cycles(
            work.some(attended), its, rate[attended], ways[attended], constants[:, attended]
        )
    products = np.flatnonzero((work.rows > 0) & (work.group != ATTENTION))
    for first in range(0, len(products), _AT_ONCE):
        some = products[first : first + _AT_ONCE]
        its = machine.of_kernels(some // count)
        found[:, some] = _quickest(work.some(some), its, rate[some], full[some], constants[:, some])
    yield from found.reshape(4, *shape)


def _quickest(work: Work, machine: Machine, rate: FloatArray, full: FloatArray, constants: FloatArray) -> FloatArray:
    """Cycles, waves, fill and splits of the quickest of all tiles and splits, shape (4, kernels)."""
    tile, peak, loaded, split, exposed, l2_rate = constants
    splits = _SPLITS[:, None]
    # A product with a vector has kernels of its own (gemv), which have no tiles to fill, and all start at once. Linear
    # layers with one row take as long as tiles that they hardly fill (aiconfigurator2026).
    row = (work.rows == 1) & (work.batch > 1)
    by_vector = (work.group == PRODUCT) & (row | (work.columns == 1))
    tall, wide = (
        np.where(by_vector, np.minimum(side[:, None, None], size), side[:, None, None])
        for size, side in zip((work.rows, work.columns), TILES.T, strict=True)
    )
    steps = np.maximum(work.reduction / splits, _FEWEST_STEPS)
    tiles = np.ceil(work.rows / tall) * np.ceil(work.columns / wide) * work.batch
    waves = tiles * splits / machine.sms
    operands = (work.loads_rows * tall + wide) * work.in_bytes * steps
    loading = operands * loaded / full
    # What kernels lose beside the products costs as many cycles for each FLOP as at the rate that they are written for.
    product = (1 / rate + (1 / peak - 1) / full) / np.sqrt(np.where(full < _LANE_RATE, work.saved, 1.0))
    computing = 2 * tall * wide * steps * product + exposed * work.exponentials * tall * steps / (
        machine.exponentials * np.ceil(work.columns / wide)
    )
    sums = split + waves * tall * wide * _PARTIAL_BYTES / l2_rate
    whole = np.where(by_vector, np.maximum(waves, 1.0), np.ceil(waves))
    cycles = whole * np.maximum(computing, loading) + np.where(by_vector, 1.0, whole) * tile
    possible = (splits == 1) | (work.reduction / splits >= _LEAST_REDUCTION)
    cycles = np.where(possible, cycles + np.where(splits > 1, sums, 0.0), np.inf)
    taken = cycles.reshape(len(TILES) * len(_SPLITS), -1).argmin(axis=0)
    each = (*np.divmod(taken, len(_SPLITS)), np.arange(len(work.place)))
    parts = _SPLITS[each[1]]
    computed = np.ceil(waves[each]) * machine.sms * (tall * wide)[each[0], 0, each[2]]
    outputs = work.batch * work.rows * work.columns
    return np.array([cycles[each], waves[each], outputs * parts / computed, parts])
