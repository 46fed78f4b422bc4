"""A residual model of physics whose corrections come from a transformer over operations and networks (model.py).

Each operation is read alone. The transformer predicts the log ratio of its device time to the least time of physics,
and that of its dynamic energy to the energy of physics. A network is read as one sequence. From its vector a head
predicts the factors by which device times and dynamic energies differ inside the network.

The input does not depend on the clock, so many clocks cost no more than one, and the last results are cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple, Self

import numpy as np

from ...arrays import FloatArray
from ...errors import InputError, damaged_entry
from ...hardware import GPU
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...rendering.answers import Plain
from ..batches import over_cores
from ..contract import Files, host_times, launch_s
from ..formats.numbers import number, number_array
from ..physics.cached import cached
from ..physics.energy import EnergyConstants
from .encoder import Encoder, StoredEncoder, TransformerWeights
from .tokens import IN_NETWORK, PHYSICS_NAMES, ROLES, WIDTH, Tokens, in_network, tokens

_WEIGHTS = "transformer.safetensors"
_AT_ONCE = 256  # Operations that one thread reads at once; more do not fit into the processor's caches.
_LONGEST = 2048  # Longest list of operations whose tokens are cached; a longer one would fill the memory.

Range = tuple[float, float]
"""Lowest and highest log ratio that was seen."""


class Reader:
    """A transformer, the last results of which are cached.

    Args:
        vocabulary: Kinds of operations that it distinguishes.
        ranges: Kind or family -> lowest and highest log ratio of time that was seen.
    """

    def __init__(self, encoder: Encoder, vocabulary: tuple[str, ...], ranges: Mapping[str, Range]) -> None:
        self.encoder, self.vocabulary, self.ranges = encoder, vocabulary, ranges
        # Each network is described for its operations, then for itself.
        self._cached_tokens = lru_cache(2)(self._tokens)

    def _described(self, operations: OperationList, gpu: GPU) -> Tokens:
        of = self._cached_tokens if len(operations) <= _LONGEST else self._tokens
        return of(operations, gpu)

    def _tokens(self, operations: OperationList, gpu: GPU) -> Tokens:
        return tokens(operations, gpu, float(gpu.boost_clock_mhz), self.vocabulary)

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`. Many rows at once use the processor's caches and all of its cores."""
        asked = [gpu for gpu in gpus if not _ratios.knows(operations, self, gpu)]
        for gpu, ratios in zip(asked, self.log_ratios(operations, asked) if asked else (), strict=True):
            _ratios.put(ratios, operations, self, gpu)

    def log_ratios(self, operations: OperationList, some: Sequence[GPU]) -> FloatArray:
        """Log ratios of time and energy on each of some GPUs, shape (gpus, operations, 2)."""
        each = [self._described(operations, gpu) for gpu in some]
        values, families, kinds = (
            np.concatenate([getattr(read, name) for read in each])[:, None] for name in ("values", "families", "kinds")
        )
        shares = np.ones(families.shape, dtype=np.float32)
        parts = [slice(first, first + _AT_ONCE) for first in range(0, len(values), _AT_ONCE)]
        ratios = over_cores(lambda p: self.encoder(values[p], families[p], kinds[p], shares[p])[0][:, 0], parts)
        by_gpu: FloatArray = np.concatenate(ratios).reshape(len(some), len(operations), 2)
        return by_gpu

    def range_of(self, kind: str) -> Range:
        """Lowest and highest log ratio of time that was seen of a kind, or of its family."""
        return self.ranges.get(kind) or self.ranges.get(KINDS[kind].family) or (-np.inf, np.inf)

    def device_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device seconds of one call of each operation at the default clock, shape (operations,)."""
        ratio, _ = _factors(operations, self, gpu)
        return self._described(operations, gpu).least.time_s * ratio

    def vectors(
        self, operations: OperationList, counts: FloatArray, device_s: FloatArray, launches_s: FloatArray, gpu: GPU
    ) -> FloatArray:
        """The vectors that describe networks of the same length; a `NetworkHead` reads them.

        The operations of all networks come one network after the other. Their counts, the device seconds of one call
        and the seconds to launch it in a loop have the shape (networks, operations of one network), the vectors
        (networks, numbers).
        """
        read = self._described(operations, gpu)
        values = in_network(read.values.reshape(*counts.shape, len(ROLES), WIDTH), counts, device_s, launches_s)
        times = counts * device_s
        shares = (times / times.sum(1, keepdims=True)).astype(np.float32)
        families, kinds = read.families.reshape(counts.shape), read.kinds.reshape(counts.shape)
        at_once = max(1, _AT_ONCE // counts.shape[1])
        parts = [slice(first, first + at_once) for first in range(0, len(counts), at_once)]
        return np.concatenate([self.encoder(values[p], families[p], kinds[p], shares[p])[1] for p in parts])


@cached
def _ratios(operations: OperationList, reader: Reader, gpu: GPU) -> FloatArray:
    """See `Reader.log_ratios`; shape (operations, 2)."""
    ratios: FloatArray = reader.log_ratios(operations, [gpu])[0]
    return ratios


@cached
def _factors(operations: OperationList, reader: Reader, gpu: GPU) -> tuple[FloatArray, FloatArray]:
    """See `ResidualModel.factors`."""
    ratios = _ratios(operations, reader, gpu)
    known = {kind: reader.range_of(kind) for kind in {operation.kind for operation in operations}}
    lowest, highest = np.array([known[operation.kind] for operation in operations]).T
    return np.exp(np.clip(ratios[:, 0], lowest, highest)), np.exp(ratios[:, 1])


@cached
def _vector(
    operations: OperationList, reader: Reader, counts: tuple[float, ...], launches_s: tuple[float, ...], gpu: GPU
) -> FloatArray:
    """The vector that describes one network; see `Reader.vectors`."""
    device_s = reader.device_s(operations, gpu)
    vector: FloatArray = reader.vectors(operations, np.array([counts]), device_s[None], np.array([launches_s]), gpu)[0]
    return vector


@dataclass(frozen=True)
class Attentive:
    """The `ResidualModel` of a transformer, which is learned from many GPUs and holds for any GPU.

    Args:
        energy: Energy constants of physics, which the transformer corrects.
        host_s: Mode -> kind -> seconds to launch an operation, see `ResidualModel.host_s`.
        head: Corrections of whole networks; None if the training data had no networks.
    """

    reader: Reader
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]
    head: NetworkHead | None = None

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """See `ResidualModel.factors`. The factors always contain the cost of the power cap, whatever `capped` says."""
        return _factors(OperationList.of(operations), self.reader, gpu)

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`."""
        self.reader.prefetch(operations, gpus)

    @property
    def same_in_all_networks(self) -> bool:
        """See `ResidualModel.same_in_all_networks`; its head reads the whole network."""
        return self.head is None

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """See `ResidualModel.in_network`."""
        if self.head is None or all(operation.is_identity for operation in operations):
            return 1.0, 1.0
        return self.head(self.vector(operations, counts, gpu))

    def vector(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> FloatArray:
        """The vector that describes a network; at least one of its operations must not be an identity."""
        runs = [not operation.is_identity for operation in operations]
        some = OperationList(compress(operations, runs))
        launches_s = launch_s(some, some[0].mode, self.host_s)
        return _vector(some, self.reader, tuple(compress(counts.tolist(), runs)), tuple(launches_s.tolist()), gpu)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        facts = {
            "predictor": "transformer",
            "tokens": [list(ROLES), list(PHYSICS_NAMES)],
            "vocabulary": list(self.reader.vocabulary),
            "ranges": {name: list(values) for name, values in self.reader.ranges.items()},
            "energy": self.energy.to_dict(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
            "head": None if self.head is None else self.head.to_dict(),
        }
        return facts, {_WEIGHTS: self.reader.encoder.to_bytes()}

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises InputError, ZooError, KeyError, TypeError, ValueError: the content is not what `to_files` writes.
        """
        # First, because the shapes of the weights follow from the tokens.
        if facts["tokens"] != [list(ROLES), list(PHYSICS_NAMES)]:
            raise InputError(
                "a stored transformer was trained with tokens of another layout",
                given=str(facts["tokens"])[:200],
                allowed=f"{', '.join(ROLES)}, with {len(PHYSICS_NAMES)} numbers in the token of physics",
                hint="train it again with this version",
            )
        weights = TransformerWeights.from_bytes(files[_WEIGHTS])
        vocabulary = facts["vocabulary"]
        if len(vocabulary) != weights.kinds or not all(isinstance(kind, str) for kind in vocabulary):
            raise damaged_entry(
                "the vocabulary of a stored transformer does not match its weights",
                f"{len(vocabulary)} kinds",
                f"the names of {weights.kinds} kinds",
            )
        head = None if facts["head"] is None else NetworkHead.from_dict(facts["head"])
        if head is not None and head.weights.shape[1] != weights.width + IN_NETWORK:
            raise damaged_entry(
                "the network head of a stored transformer does not match its weights",
                f"shape {head.weights.shape}",
                f"shape (2, {weights.width + IN_NETWORK})",
            )
        ranges = {name: (number(low), number(high)) for name, (low, high) in facts["ranges"].items()}
        return cls(
            reader=Reader(StoredEncoder(weights), tuple(vocabulary), ranges),
            energy=EnergyConstants.from_dict(facts["energy"]),
            host_s=host_times(facts["host_s"]),
            head=head,
        )

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {"transformer": self.reader.encoder}


_LEAST_SPREAD = 1e-3

SYNTHETIC_LENGTH = 12
"""Number of operations in a synthetic network, which is put together from measured operations."""


class Example(NamedTuple):
    """A network to learn from.

    Args:
        vector: The vector that a transformer makes of the network, shape (numbers,).
        log_time, log_energy: Logarithms of measured time and energy over the values predicted from its operations.
        device: How much its time depends on the device: 1 where only the device counts, 0 where only the host does.
    """

    vector: FloatArray
    log_time: float
    log_energy: float
    device: float
    weight: float


@dataclass(frozen=True)
class NetworkHead(Plain):
    """Predicts two factors from the vector of a network: for the device time and dynamic energy of its operations.

    Args:
        weights: Weights of a linear function that gives the logarithms of the factors, shape (2, numbers of a vector).
        bias: Bias of this function, shape (2,).
        lowest, highest: Range of the logarithms in training, each of shape (2,); predictions stay within it.
    """

    weights: FloatArray
    bias: FloatArray
    lowest: FloatArray
    highest: FloatArray

    def __call__(self, vector: FloatArray) -> tuple[float, float]:
        """Factors for device time and for dynamic energy."""
        time, energy = np.exp(np.clip(self.weights @ vector + self.bias, self.lowest, self.highest)).tolist()
        return time, energy

    @classmethod
    def fit(cls, examples: Sequence[Example], shrinkage: float) -> Self:
        """Fit by ridge regression, with the numbers of the vectors in units of their standard deviation.

        The shrinkage is the penalty on the squared weights; the weights of the examples sum up to one.
        """
        vectors, log_time, log_energy, device, weight = (np.array(column) for column in zip(*examples, strict=True))
        weight = weight / weight.sum()
        centre = weight @ vectors
        spread = np.sqrt(weight @ (vectors - centre) ** 2) + _LEAST_SPREAD
        inputs = np.column_stack([(vectors - centre) / spread, np.ones(len(vectors))])
        found = np.array(
            [
                _ridge(inputs * device[:, None], log_time, weight, shrinkage),
                _ridge(inputs, log_energy, weight, shrinkage),
            ]
        )
        logs = found @ inputs.T
        weights = found[:, :-1] / spread
        return cls(weights, found[:, -1] - weights @ centre, logs.min(1), logs.max(1))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises KeyError, TypeError, ValueError: the content is not what `to_dict` writes.
        """
        weights = number_array(value["weights"], 2)
        bias, lowest, highest = (number_array(value[name]) for name in ("bias", "lowest", "highest"))
        if len(weights) != 2 or any(array.shape != (2,) for array in (bias, lowest, highest)):
            raise ValueError(
                f"the head for networks has arrays of shapes {weights.shape}, {bias.shape}, {lowest.shape} and "
                f"{highest.shape} instead of (2, numbers) and three times (2,)"
            )
        return cls(weights, bias, lowest, highest)


def _ridge(inputs: FloatArray, target: FloatArray, weight: FloatArray, shrinkage: float) -> FloatArray:
    weighted = inputs * weight[:, None]
    moments = inputs.T @ weighted + shrinkage * np.eye(inputs.shape[1])
    return np.asarray(np.linalg.solve(moments, weighted.T @ target), dtype=np.float64)
