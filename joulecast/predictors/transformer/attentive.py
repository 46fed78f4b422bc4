"""A residual model of physics whose corrections come from a transformer over operations and networks (encoder.py).

Each operation is read alone. The transformer predicts the log ratio of its device time to that of physics, which is the
least time with what is counted of fp32 kernels (fp32_kernels.py), and that of its dynamic energy to that of physics. A
network is read as one sequence. From its vector a head predicts the factors by which device times and dynamic energies
differ inside the network.

The input does not depend on the clock, so many clocks cost no more than one, and the last results are cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...errors import damaged_entry
from ...hardware import GPU
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...rendering.answers import Plain
from ..batches import over_cores
from ..contract import Files, host_times, launch_s
from ..formats.numbers import number, number_array, require_features
from ..model.boosted_residual import Range
from ..physics.cached import cached
from ..physics.energy import EnergyConstants
from ..physics.fp32_kernels import counted_ratio
from ..physics.least_times import LeastTimes
from ..recipes import TransformerRecipe, recipe_of
from .encoder import Encoder
from .tokens import IN_NETWORK, PHYSICS_NAMES, ROLES, WIDTH, in_network, tokens

_WEIGHTS = "transformer.safetensors"
_LAYOUT = [*ROLES, *PHYSICS_NAMES]
_AT_ONCE = 256  # Operations that one thread reads at once; more do not fit into the processor's caches.


@dataclass(frozen=True, eq=False)
class Reader:
    """A transformer, and what it knows of kinds.

    Args:
        encoder: Maps tokens to log ratios and to vectors of networks.
        vocabulary: Kinds of operations that it distinguishes.
        ranges: Kind or family -> lowest and highest log ratio of time that was seen.
    """

    encoder: Encoder
    vocabulary: tuple[str, ...]
    ranges: Mapping[str, Range]

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`. Many rows at once use the processor's caches and all of its cores."""
        asked = [gpu for gpu in gpus if not _ratios.knows(operations, self, gpu)]
        for gpu, ratios in zip(asked, self.log_ratios(operations, asked) if asked else (), strict=True):
            _ratios.put(ratios, operations, self, gpu)

    def log_ratios(self, operations: OperationList, some: Sequence[GPU]) -> FloatArray:
        """Log ratios of time and energy on each of some GPUs, shape (gpus, operations, 2)."""
        each = (tokens(operations, gpu, self.vocabulary) for gpu in some)
        values, families, kinds = (np.concatenate(column)[:, None] for column in zip(*each, strict=True))
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
        least_s = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s
        return least_s * counted_ratio(operations, gpu) * _factors(operations, self, gpu)[0]

    def vectors(
        self, operations: OperationList, counts: FloatArray, device_s: FloatArray, launches_s: FloatArray, gpu: GPU
    ) -> FloatArray:
        """The vectors that describe networks of the same length; a `NetworkHead` reads them.

        The operations of all networks come one network after the other. Their counts, the device seconds of one call
        and the seconds to launch it in a loop have the shape (networks, operations of one network), the vectors
        (networks, numbers).
        """
        read = tokens(operations, gpu, self.vocabulary)
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
    """Ratios of time, within what was seen, and of energy to those of physics, (operations,) each."""
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
        """See `ResidualModel.factors`."""
        listed = OperationList.of(operations)
        time, energy = _factors(listed, self.reader, gpu)
        return time * counted_ratio(listed, gpu, capped), energy

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
            "recipe": self.reader.encoder.recipe.to_dict(),
            "tokens": _LAYOUT,
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
        require_features(facts["tokens"], _LAYOUT, "transformer")
        recipe, vocabulary = recipe_of(TransformerRecipe, facts["recipe"], "transformer recipe"), facts["vocabulary"]
        head = None if facts["head"] is None else NetworkHead.from_dict(facts["head"], recipe.width + IN_NETWORK)
        ranges = {name: (number(low), number(high)) for name, (low, high) in facts["ranges"].items()}
        energy, host_s = EnergyConstants.from_dict(facts["energy"]), host_times(facts["host_s"])
        encoder = Encoder.from_bytes(recipe, files[_WEIGHTS], len(vocabulary))
        return cls(Reader(encoder, tuple(map(str, vocabulary)), ranges), energy, host_s, head)

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {"transformer": self.reader.encoder}


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
    def from_dict(cls, value: Mapping[str, Any], numbers: int) -> Self:
        """Read what `to_dict` wrote, for vectors of so many numbers.

        Raises ZooError, KeyError, TypeError, ValueError: the content is something else.
        """
        weights = number_array(value["weights"], 2)
        ends = [number_array(value[name]) for name in ("bias", "lowest", "highest")]
        given, wanted = [each.shape for each in (weights, *ends)], [(2, numbers), (2,), (2,), (2,)]
        if given != wanted:
            raise damaged_entry("the network head of a stored transformer does not match its weights", given, wanted)
        return cls(weights, *ends)
