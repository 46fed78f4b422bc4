"""Predicting with a transformer over operations and networks (transformer.py), without torch.

Operations: each is read alone, and gets the log ratio of its device time to the least time that physics allows
(physics.py) and of its dynamic energy to what physics says at that time. Networks: all operations are read together,
and the network gets log ratios of its time and dynamic energy to what its parts say,

    T = max(sum of device times, sum of host times) x exp(correction of time)
    E = sum of dynamic energies x exp(correction of energy) + static power x T
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..hardware import GPU
from ..networks import Network
from ..operations import Operation
from .baseline import smooth_max
from .composition import Totals
from .contract import launch_s
from .features import FloatArray
from .physics import EnergyConstants, static_power_w
from .predictor import OperationPredictions
from .tokens import ROLES, WIDTH, in_network
from .transformer_examples import Operations, host_in_network_s

Range = tuple[float, float]

Encoder = Callable[
    [NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]], tuple[FloatArray, FloatArray]
]
"""Maps tokens, families, kinds and shares to log ratios of operations and of networks, see transformer.Outputs."""

_AT_ONCE = 256  # Operations that are read at once: more do not fit into the caches.


@dataclass(frozen=True)
class Attentive:
    """What a transformer has learned over all GPUs, whichever one is asked for.

    Args:
        encoder: The transformer.
        vocabulary: Kinds that it tells apart.
        ranges: Kind or family -> lowest and highest log ratio of time that was seen.
        energy: What work costs, as far as physics tells.
        host_s: Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed.
        learned_networks: Whether measured networks were among the training data.
    """

    encoder: Encoder
    vocabulary: tuple[str, ...]
    ranges: Mapping[str, Range]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]
    learned_networks: bool = False

    def to_json(self) -> dict[str, Any]:
        """Everything but the transformer."""
        return {
            "tokens": [len(ROLES), WIDTH],
            "vocabulary": list(self.vocabulary),
            "ranges": {name: list(values) for name, values in self.ranges.items()},
            "energy": self.energy.to_json(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
            "learned_networks": self.learned_networks,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], encoder: Encoder) -> Self:
        """Read what `to_json` wrote.

        Raises:
            InputError: The transformer reads other tokens than these.
        """
        if value["tokens"] != [len(ROLES), WIDTH]:
            raise InputError(
                "a stored transformer reads other tokens", given=value["tokens"], allowed=f"{len(ROLES)} x {WIDTH}"
            )
        return cls(
            encoder=encoder,
            vocabulary=tuple(value["vocabulary"]),
            ranges={name: (float(low), float(high)) for name, (low, high) in value["ranges"].items()},
            energy=EnergyConstants.from_json(value["energy"]),
            host_s={mode: dict(kinds) for mode, kinds in value["host_s"].items()},
            learned_networks=value["learned_networks"],
        )

    def read(self, operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> Operations:
        """Operations as arrays."""
        return Operations.of(operations, gpu, clock_mhz, self.vocabulary, self.energy)

    def costs(self, operations: Sequence[Operation], read: Operations) -> tuple[FloatArray, FloatArray]:
        """Device seconds and dynamic joules of one call of each."""
        ratios = np.concatenate([self._alone(read, place) for place in range(0, len(operations), _AT_ONCE)])
        lowest, highest = np.array([self._range(operation) for operation in operations]).T
        device_s = read.least_s * np.exp(np.clip(ratios[:, 0], lowest, highest))
        return device_s, read.dynamic_j(device_s) * np.exp(ratios[:, 1])

    def _alone(self, read: Operations, first: int) -> FloatArray:
        part = slice(first, first + _AT_ONCE)
        families = read.families[part, None]
        shares = np.ones(families.shape, dtype=np.float32)
        ratios, _ = self.encoder(read.values[part, None], families, read.kinds[part, None], shares)
        return ratios[:, 0]

    def _range(self, operation: Operation) -> Range:
        kind, family = operation.kind, operation.row.family
        return self.ranges.get(kind) or self.ranges.get(family) or (-np.inf, np.inf)

    def correction(
        self, read: Operations, counts: FloatArray, device_s: FloatArray, host_s: FloatArray
    ) -> tuple[float, float]:
        """Factors of a network's time and dynamic energy to what its parts say; 1 where no network was learned from."""
        if not self.learned_networks:
            return 1.0, 1.0
        shares = counts * device_s / (counts @ device_s)
        told = in_network(read.values, counts, device_s, host_s)
        _, ratios = self.encoder(told[None], read.families[None], read.kinds[None], shares.astype(np.float32)[None])
        time, energy = np.exp(ratios[0]).tolist()
        return time, energy


@dataclass(frozen=True)
class AttentivePredictor:
    """What a transformer has learned, on one GPU and in one mode.

    Args:
        gpu: Any that the catalogue or a file describes.
        mode: inference or training.
        learned: Shared by all GPUs.
    """

    gpu: GPU
    mode: str
    learned: Attentive

    @property
    def coverage(self) -> tuple[str, ...]:
        """What is covered: every kind, in the precisions of the GPU."""
        return tuple(f"all kinds in {precision}" for precision in self.gpu.peak_flops)

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """Predict operations on this GPU; see `OperationPredictor.predict`.

        Raises:
            InputError: An operation of another mode, or a clock or a cap that the GPU cannot hold.
        """
        for operation in operations:
            if operation.mode != self.mode:
                raise InputError(f"this predictor is for {self.mode}", given=repr(operation), allowed=self.mode)
        clock, cap_w = self.gpu.checked_clock_mhz(clock_mhz), self.gpu.checked_power_limit_w(power_limit_w)
        covered = self._covered(operations)
        values = np.full((5, len(operations)), np.nan)
        if covered.any():
            some = [operation for operation, known in zip(operations, covered, strict=True) if known]
            values[:, covered] = self._predict_covered(some, clock, cap_w)
        time_s, power_w, device_s, dynamic_j, host_s = values
        return OperationPredictions(
            operations=tuple(operations),
            time_s=time_s,
            power_w=power_w,
            energy_j=time_s * power_w,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            host_time_s=host_s,
            source=tuple("modelled" if known else "missing" for known in covered),
            static_power_w=static_power_w(self.gpu, clock),
            held_clock_mhz=np.where(covered, clock, np.nan),
        )

    def _covered(self, operations: Sequence[Operation]) -> NDArray[np.bool_]:
        return np.array([o.precision == "tf32" or o.precision in self.gpu.peak_flops for o in operations], dtype=bool)

    def _predict_covered(self, operations: Sequence[Operation], clock: float, cap_w: float) -> FloatArray:
        device_s, dynamic_j = self._costs(operations, self.learned.read(operations, self.gpu, clock), clock, cap_w)
        host_s = launch_s(operations, self.mode, self.learned.host_s)
        time_s = smooth_max(device_s, host_s)
        return np.array([time_s, static_power_w(self.gpu, clock) + dynamic_j / time_s, device_s, dynamic_j, host_s])

    def _costs(
        self, operations: Sequence[Operation], read: Operations, clock: float, cap_w: float
    ) -> tuple[FloatArray, FloatArray]:
        device_s, dynamic_j = self.learned.costs(operations, read)
        works = np.array([not operation.is_identity for operation in operations], dtype=float)
        most_w = cap_w - static_power_w(self.gpu, clock)
        return device_s * works, np.minimum(dynamic_j, most_w * device_s) * works

    def predict_network(self, network: Network, clock_mhz: float | None = None) -> Totals:
        """Predict a network as a whole; operations that are not covered are left out, and the caller lists them.

        Raises:
            InputError: A network of another mode, a clock that the GPU cannot hold, or nothing is covered.
        """
        if network.mode != self.mode:
            raise InputError(f"this predictor is for {self.mode}", given=network.mode, allowed=self.mode)
        clock = self.gpu.checked_clock_mhz(clock_mhz)
        entries = [entry for entry in network if not entry.operation.is_identity]
        covered = self._covered([entry.operation for entry in entries])
        entries = [entry for entry, known in zip(entries, covered, strict=True) if known]
        if not entries:
            raise InputError("nothing of this network is covered", given=network.name)
        operations = [entry.operation for entry in entries]
        counts = np.array([entry.count for entry in entries], dtype=float)
        read = self.learned.read(operations, self.gpu, clock)
        device_s, dynamic_j = self._costs(operations, read, clock, self.gpu.power_limit_w)
        host_s = host_in_network_s(operations, self.mode, self.learned.host_s)
        time, energy = self.learned.correction(read, counts, device_s, host_s)
        device, host = float(counts @ device_s), float(counts @ host_s)
        time_s = float(smooth_max(device, host)) * time
        energy_j = float(counts @ dynamic_j) * energy + static_power_w(self.gpu, clock) * time_s
        return Totals(time_s, min(energy_j, self.gpu.power_limit_w * time_s), device, host)
