"""Selects measured operations, and turns them into the arrays that a transformer is trained on."""

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
"""Number of operations in a synthetic network, which is put together from measured operations."""


@dataclass(frozen=True)
class Examples:
    """Measured operations as arrays with one row for each operation.

    Args:
        rows: The measurements, in the order of the arrays.
        values, families, kinds: The input of the transformer, see `Tokens`.
        log_ratio: Logarithm of device time over least time, shape (operations,).
        weight: Weight of each operation in the loss, shape (operations,); their mean is 1.
        power_w: Board power while the operation ran, shape (operations,); NaN where it is unknown.
        dynamic_w: Power above static power: the dynamic energy by physics over the measured device time, shape
            (operations,).
        static_w, cap_w: Static power and power cap of the GPU, shape (operations,).
        groups: For each GPU and mode, the indices of its operations.
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
        """Make the arrays from measurements at default clocks.

        Args:
            rows: Measurements of any GPUs and modes.
            vocabulary: The kinds that have vectors of their own, UNKNOWN first.
        """
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
                    # Otherwise fifty thousand measurements of one GPU would outweigh five hundred of another.
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
        """Subtract the mean from the numbers of one token, and divide them by twice their standard deviation.

        Args:
            role: Index of the token in ROLES.

        Returns:
            What was subtracted and what was divided by, each of shape (len(ROLES), WIDTH). Numbers that stay as they
            are have 0 and 1 there.
        """
        centre, unit = np.zeros_like(self.values[0]), np.ones_like(self.values[0])
        spread = self.values[:, role].std(axis=0)
        varies = spread > _LEAST_SPREAD
        centre[role] = np.where(varies, self.values[:, role].mean(axis=0), 0.0)
        unit[role] = np.where(varies, 2 * spread, 1.0)
        self.values[:, role] = (self.values[:, role] - centre[role]) / unit[role]
        return centre, unit

    def synthetic(self, draw: np.random.Generator, networks: int) -> NDArray[np.int64]:
        """Draw synthetic networks from the operations of one GPU in one mode.

        Args:
            draw: Source of random numbers.
            networks: Number of networks.

        Returns:
            Indices of operations, shape (networks, SYNTHETIC_LENGTH).
        """
        # The square root keeps a GPU with many measurements from being drawn almost always, as in `weight`.
        sizes = np.sqrt([len(group) for group in self.groups])
        group = self.groups[draw.choice(len(sizes), p=sizes / sizes.sum())]
        return draw.choice(group, (networks, SYNTHETIC_LENGTH))


def vocabulary_of(rows: Sequence[DeviceRow]) -> tuple[str, ...]:
    """UNKNOWN and the kinds that were measured; only these get vectors of their own."""
    return (UNKNOWN, *sorted({row.operation.kind for row in rows}))


def thinned(rows: Sequence[DeviceRow], most: int, seed: int) -> list[DeviceRow]:
    """Select rows so that rare groups stay complete and frequent groups are sampled at random.

    A group is a kind on one GPU in one precision and mode.

    Args:
        rows: Measurements.
        most: Number of rows to select at most.
        seed: Seed of the random numbers.

    Returns:
        The selected rows, in the order of `rows`.
    """
    groups: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        operation = row.operation
        groups[row.gpu.name, operation.kind, operation.precision, operation.mode].append(place)
    sizes = np.array([len(places) for places in groups.values()])
    # By bisection: the largest limit on the rows of a group with which all groups together stay within `most`.
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= most else (low, middle - 1)
    draw = np.random.default_rng(seed)
    chosen = [
        place
        for places in groups.values()
        for place in (places if len(places) <= low else draw.permutation(places)[:low].tolist())
    ]
    return [rows[place] for place in sorted(chosen)]
