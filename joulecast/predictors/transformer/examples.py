"""Measured operations as arrays for a transformer to be trained on, and which of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..measured.device_rows import DeviceRow, rows_by_gpu
from ..physics.energy import PRIOR_ENERGY, static_power_w
from .tokens import UNKNOWN, tokens

_LEAST_SPREAD = 1e-3

SYNTHETIC_LENGTH = 12
"""Operations in a network that is put together from measured ones."""


@dataclass(frozen=True)
class Examples:
    """Measured operations, one value (or one set of tokens) each.

    Args:
        rows: The measurements, in the order of the arrays.
        values, families, kinds: What the transformer reads of each operation, see `Tokens`.
        log_ratio: Log of device time over least time.
        weight: 1 in the mean.
        power_w: Board power while it ran; NaN where unknown.
        dynamic_w: What physics says above static power, in the time that it took.
        static_w, cap_w: Static power and power cap of the GPU that each ran on.
        groups: Places of what ran on one GPU in one mode.
    """

    rows: tuple[DeviceRow, ...]
    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]
    log_ratio: FloatArray
    weight: FloatArray
    power_w: FloatArray
    dynamic_w: FloatArray
    static_w: FloatArray
    cap_w: FloatArray
    groups: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: Sequence[DeviceRow], vocabulary: Sequence[str]) -> Self:
        """Rows at default clocks, GPU by GPU."""
        parts, sizes = [], []
        by_gpu = rows_by_gpu(rows)
        for (gpu, _), group in by_gpu.items():
            clock = float(gpu.boost_clock_mhz)
            operations = [row.operation for row in group]
            read = tokens(operations, gpu, clock, vocabulary)
            device_s = np.array([row.device_s for row in group])
            one = np.ones(len(group))
            sizes.append(len(group))
            parts.append(
                (
                    read.values,
                    read.families,
                    read.kinds,
                    np.log(device_s / read.least.time_s),
                    # Fifty thousand measurements of one GPU must not outvote five hundred of another.
                    one * len(group) ** -0.5,
                    np.array([np.nan if row.power_w is None else row.power_w for row in group]),
                    PRIOR_ENERGY.dynamic_energy_j(operations, device_s, gpu, clock) / device_s,
                    one * static_power_w(gpu, clock),
                    one * gpu.power_limit_w,
                )
            )
        values, families, kinds, *numbers = map(np.concatenate, zip(*parts, strict=True))
        log_ratio, weight, power_w, dynamic_w, static_w, cap_w = numbers
        return cls(
            rows=tuple(row for group in by_gpu.values() for row in group),
            values=values,
            families=families,
            kinds=kinds,
            log_ratio=log_ratio,
            weight=weight / weight.mean(),
            power_w=power_w,
            dynamic_w=dynamic_w,
            static_w=static_w,
            cap_w=cap_w,
            groups=tuple(np.split(np.arange(len(weight)), np.cumsum(sizes)[:-1])),
        )

    def normalize(self, role: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Put the values of one role in units of twice their spread around their mean.

        Returns:
            Centre and unit of all values, of shape (len(ROLES), WIDTH): 0 and 1 where they stay as they are.
        """
        centre, unit = np.zeros_like(self.values[0]), np.ones_like(self.values[0])
        spread = self.values[:, role].std(axis=0)
        varies = spread > _LEAST_SPREAD
        centre[role] = np.where(varies, self.values[:, role].mean(axis=0), 0.0)
        unit[role] = np.where(varies, 2 * spread, 1.0)
        self.values[:, role] = (self.values[:, role] - centre[role]) / unit[role]
        return centre, unit

    def synthetic(self, draw: np.random.Generator, networks: int) -> NDArray[np.int64]:
        """Places of operations of one GPU and mode as networks, shape (networks, SYNTHETIC_LENGTH)."""
        # As in the weights: one GPU must not outvote another.
        sizes = np.sqrt([len(group) for group in self.groups])
        group = self.groups[draw.choice(len(sizes), p=sizes / sizes.sum())]
        return draw.choice(group, (networks, SYNTHETIC_LENGTH))


def vocabulary_of(rows: Sequence[DeviceRow]) -> tuple[str, ...]:
    """The kinds that were measured alone, after UNKNOWN; others have no vector of their own to learn."""
    return (UNKNOWN, *sorted({row.operation.kind for row in rows}))


def thinned(rows: Sequence[DeviceRow], most: int, seed: int) -> list[DeviceRow]:
    """At most so many rows: of each kind on each GPU all where there are few, else a random part."""
    groups: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        operation = row.operation
        groups[row.gpu.name, operation.kind, operation.precision, operation.mode].append(place)
    sizes = np.array([len(places) for places in groups.values()])
    # The largest number per group whose sum stays within the bound.
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= most else (low, middle - 1)
    draw = np.random.default_rng(seed)
    kept = [
        place
        for places in groups.values()
        for place in (places if len(places) <= low else draw.permutation(places)[:low].tolist())
    ]
    return [rows[place] for place in sorted(kept)]
