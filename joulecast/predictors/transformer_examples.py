"""What a transformer is trained on, as arrays: operations, measured networks, and networks made up of operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..datasets import NetworkMeasurement
from ..hardware import GPU
from ..networks import Network
from ..operations import Operation
from .composition import HostModel
from .contract import launch_s
from .device_row import DeviceRow
from .features import FloatArray
from .physics import EnergyConstants, static_power_w
from .tokens import UNKNOWN, Tokens, tokens

_LEAST_HOST_S = 5e-6  # A kernel launch alone takes about this long.


@dataclass(frozen=True)
class Operations:
    """Operations that are read together, one value (or one set of tokens) each.

    Args:
        values, families, kinds: See `Tokens`.
        least_s: The least times that physics allows.
        work_j: Dynamic joules that do not depend on the time taken.
        awake_w: Dynamic watts while it runs, on top.
    """

    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]
    least_s: FloatArray
    work_j: FloatArray
    awake_w: FloatArray

    @classmethod
    def of(
        cls,
        operations: Sequence[Operation],
        gpu: GPU,
        clock_mhz: float,
        vocabulary: Sequence[str],
        energy: EnergyConstants,
    ) -> Self:
        """Operations on a GPU at a clock."""
        read: Tokens = tokens(operations, gpu, clock_mhz, vocabulary)
        work_j, with_one_second_j = (
            energy.dynamic_energy_j(operations, np.full(len(operations), seconds), gpu, clock_mhz)
            for seconds in (0.0, 1.0)
        )
        return cls(read.values, read.families, read.kinds, read.least.time_s, work_j, with_one_second_j - work_j)

    def dynamic_j(self, device_s: FloatArray) -> FloatArray:
        """Dynamic joules as far as physics tells."""
        joules: FloatArray = self.work_j + self.awake_w * device_s
        return joules

    def __getitem__(self, places: NDArray[np.int64] | None) -> Self:
        """Some of them, or all as a sequence of their own."""
        return type(self)(*(getattr(self, f.name)[places] for f in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """One after the other."""
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))


@dataclass(frozen=True)
class OperationExamples:
    """Measured operations.

    Args:
        rows: In the order of the arrays.
        operations: What ran.
        log_ratio: Log of device time over least time.
        weight: 1 in the mean.
        power_w: NaN where unknown.
        static_w, cap_w: Of the GPU.
        groups: Places of what ran on one GPU in one mode.
    """

    rows: tuple[DeviceRow, ...]
    operations: Operations
    log_ratio: FloatArray
    weight: FloatArray
    power_w: FloatArray
    static_w: FloatArray
    cap_w: FloatArray
    groups: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: Sequence[DeviceRow], vocabulary: Sequence[str], energy: EnergyConstants) -> Self:
        """Rows GPU by GPU, at default clocks."""
        by_gpu: dict[tuple[GPU, str], list[DeviceRow]] = defaultdict(list)
        for row in rows:
            by_gpu[row.gpu, row.operation.mode].append(row)
        ordered: list[DeviceRow] = []
        parts, weight, static_w, groups = [], [], [], []
        for (gpu, _), group in by_gpu.items():
            clock = float(gpu.boost_clock_mhz)
            parts.append(Operations.of([row.operation for row in group], gpu, clock, vocabulary, energy))
            # Fifty thousand measurements of one GPU must not outvote five hundred of another.
            weight.append(np.full(len(group), len(group) ** -0.5))
            static_w.append(np.full(len(group), static_power_w(gpu, clock)))
            groups.append(np.arange(len(ordered), len(ordered) + len(group)))
            ordered += group
        operations, weights = Operations.joined(parts), np.concatenate(weight)
        return cls(
            rows=tuple(ordered),
            operations=operations,
            log_ratio=np.log(np.array([row.device_s for row in ordered]) / operations.least_s),
            weight=weights / weights.mean(),
            power_w=np.array([np.nan if row.power_w is None else row.power_w for row in ordered]),
            static_w=np.concatenate(static_w),
            cap_w=np.array([row.gpu.power_limit_w for row in ordered]),
            groups=tuple(groups),
        )


@dataclass(frozen=True)
class NetworkExample:
    """A measured network.

    Args:
        operations: Its unique operations.
        counts: How often each runs.
        host_s: Seconds that one call of each costs the host inside a network.
        time_s, power_w: Measured.
        static_w, cap_w: Of the GPU, at the clock that was held.
    """

    operations: Operations
    counts: FloatArray
    host_s: FloatArray
    time_s: float
    power_w: float
    static_w: float
    cap_w: float


def network_example(
    gpu: GPU,
    measurement: NetworkMeasurement,
    network: Network,
    vocabulary: Sequence[str],
    energy: EnergyConstants,
    launches_s: Mapping[str, Mapping[str, float]],
) -> NetworkExample:
    """A measured network as arrays."""
    clock = measurement.clock_mhz or float(gpu.boost_clock_mhz)
    operations = [entry.operation for entry in network]
    return NetworkExample(
        operations=Operations.of(operations, gpu, clock, vocabulary, energy),
        counts=np.array([entry.count for entry in network], dtype=float),
        host_s=host_in_network_s(operations, measurement.mode, launches_s),
        time_s=measurement.time_s,
        power_w=measurement.power_w,
        static_w=static_power_w(gpu, clock),
        cap_w=gpu.power_limit_w,
    )


def host_in_network_s(
    operations: Sequence[Operation], mode: str, launches_s: Mapping[str, Mapping[str, float]]
) -> FloatArray:
    """Seconds that one call of each costs the host inside a network, where no network told better."""
    offset_s = HostModel.prior(mode).offset_s
    return np.maximum(launch_s(operations, mode, launches_s) + offset_s, _LEAST_HOST_S)


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
