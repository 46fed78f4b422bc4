"""A transformer in numpy, from its stored weights: the arithmetic of `OperationTransformer.forward`.

Predicting needs no torch, and loading runs no code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, damaged_entry
from ..formats.arrays import arrays_from_bytes, arrays_to_bytes
from ..physics.operation_numbers import FAMILIES
from ..regressors.trees import not_trained
from .tokens import IN_NETWORK, ROLES, WIDTH

UNIT = 0.5
"""Typical size of an operation's log ratio. The head predicts log ratios in this unit, so its outputs are about 1."""

Floats = NDArray[np.float32]
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_NORM_EPSILON = 1e-5  # As in torch.


def sinusoids(places: int, width: int) -> Floats:
    """Sines, then cosines, of the places from 0 on, shape (places, width).

    Their wavelengths reach from 2 pi to 10,000 times that (Vaswani et al., Attention Is All You Need, 2017, section
    3.5).
    """
    pairs = width // 2
    angles = np.arange(places, dtype=np.float32)[:, None] * (10_000.0 ** (-np.arange(pairs) / pairs)).astype(np.float32)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def gelu(values: Floats) -> Floats:
    """Half of x (1 + erf(x / sqrt 2)), with erf to 1.5e-7 (Abramowitz and Stegun, formula 7.1.26)."""
    size = np.abs(values)
    size *= np.float32(math.sqrt(0.5))
    t = np.float32(0.3275911) * size
    t += 1
    np.reciprocal(t, out=t)
    series = np.float32(_ERF[-1]) * t
    for factor in _ERF[-2::-1]:
        series += np.float32(factor)
        series *= t
    np.multiply(size, size, out=size)
    np.negative(size, out=size)
    series *= np.exp(size, out=size)
    np.subtract(1, series, out=series)
    np.copysign(series, values, out=series)
    series += 1
    series *= values
    series *= np.float32(0.5)
    return series


class Encoder(Protocol):
    """A trained transformer over tokens; see `OperationTransformer.forward`."""

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
        /,
    ) -> tuple[FloatArray, FloatArray]:
        """Log ratios of operations, shape (sequences, operations, 2), and vectors of networks, (sequences, numbers).

        Args:
            values: Tokens, shape (sequences, operations, len(ROLES), WIDTH).
            families: Family of each operation, shape (sequences, operations).
            kinds: Kind of each operation, shape (sequences, operations).
            shares: Share of each operation in its network's device time, shape (sequences, operations).
        """

    def to_bytes(self) -> bytes:
        """The weights as the bytes of a file. Raises ZooError: it was not trained, but read from a file."""


STACKS = ("over_network", "over_operation", "over_kinds")
# Limits that keep damaged or hostile files from taking all memory.
_MOST_NUMBERS = 4096  # Along any axis of an array.
_MOST_WIDTH = 1024
_MOST_HEADS = 32  # Each head needs memory for the square of a network's length.
_MOST_LAYERS = 64
# Values of entries that were stored before these facts were.
_FACTS = {"heads": "2", "distance_weighting": "True", "operation_vector": "sum", "positional_encoding": "False"}


@dataclass(frozen=True)
class TransformerWeights:
    """The weights of an `OperationTransformer`, checked when they are made.

    Args:
        arrays: Name of a parameter in `OperationTransformer` -> its weights in fp32.
        distance_weighting: Whether attention scores shrink with the distance of two tokens.
        operation_vector: What stands for an operation: "sum" of its tokens, or the token of its "kind".
        positional_encoding: Whether sinusoids of its place are added to an operation's vector.

    Raises:
        ZooError: An array is missing, unknown, of another type or of a shape that does not match the others; or the
            transformer is larger than allowed.
    """

    arrays: Mapping[str, NDArray[np.float32]]
    heads: int
    distance_weighting: bool
    operation_vector: str = "sum"
    positional_encoding: bool = False

    def __post_init__(self) -> None:
        given = {name: array.shape for name, array in self.arrays.items()}
        if any(array.dtype != np.float32 for array in self.arrays.values()):
            given_types = sorted({str(array.dtype) for array in self.arrays.values()})
            raise _refused("an array is not in fp32", ", ".join(given_types), "float32")
        layers, widest = len([*self.layers()]), max((max(shape, default=1) for shape in given.values()), default=0)
        if layers > _MOST_LAYERS or widest > _MOST_NUMBERS:
            given_size = f"{layers} layers, {widest} numbers along an axis"
            raise _refused("they are too large", given_size, f"{_MOST_LAYERS} layers, {_MOST_NUMBERS} numbers")
        expected = self._expected()
        off = sorted(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
        if off:
            name = off[0]
            raise _refused(
                f"the array {name[:60]!r} is missing, unknown or of another shape",
                given.get(name, "no such array"),
                expected.get(name, "no array of this name"),
            )
        if not 0 < self.heads <= _MOST_HEADS or self.width % self.heads:
            raise _refused(
                "the number of attention heads is impossible",
                self.heads,
                f"a divisor of {self.width} up to {_MOST_HEADS}",
            )
        if self.positional_encoding and self.width % 2:
            raise _refused("positional encoding needs an even width", self.width, "an even number")

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        roles = self.arrays.get("roles", np.zeros((0, 0)))
        if roles.ndim != 2 or not 0 < roles.shape[1] <= _MOST_WIDTH:
            raise _refused("the width of vectors is impossible", roles.shape, f"(roles, 1 to {_MOST_WIDTH})")
        return int(roles.shape[1])

    @property
    def kinds(self) -> int:
        """Length of the vocabulary."""
        return len(self.arrays["kind.weight"])

    def layers(self, stack: str | None = None) -> Iterator[str]:
        """The prefix of each layer's array names, in order."""
        for each in STACKS if stack is None else (stack,):
            number = 0
            while f"{each}.{number}.attend.weight" in self.arrays:
                yield f"{each}.{number}."
                number += 1

    def normalized(self, layer: str) -> bool:
        """Whether a layer normalizes its residuals."""
        return f"{layer}norms.0.weight" in self.arrays

    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every array, given the width, the size of the vocabulary and the feed-forward widths."""
        width = self.width
        expected: dict[str, tuple[int, ...]] = {
            "read": (len(ROLES), WIDTH, width),
            "roles": (len(ROLES), width),
            "lowest": (len(ROLES), WIDTH),
            "highest": (len(ROLES), WIDTH),
            "family.weight": (len(FAMILIES), width),
            "kind.weight": (self._rows("kind.weight"), width),
            "operation_head.weight": (2, width),
            "operation_head.bias": (2,),
        }
        for layer in self.layers():
            wide = self._rows(f"{layer}widen.bias")
            for name, rows, columns in (
                ("attend", 3 * width, width),
                ("gather", width, width),
                ("widen", wide, width),
                ("narrow", width, wide),
            ):
                expected |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
            if self.normalized(layer):
                names = (f"{layer}norms.{number}.{part}" for number in range(2) for part in ("weight", "bias"))
                expected |= dict.fromkeys(names, (width,))
        return expected

    def _rows(self, name: str) -> int:
        array = self.arrays.get(name)
        return max(1, len(array)) if array is not None and array.ndim else 1

    def to_bytes(self) -> bytes:
        """The weights in the safetensors format; the same weights give the same bytes."""
        facts = {name: str(getattr(self, name)) for name in _FACTS}
        return arrays_to_bytes(self.arrays, facts)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises ZooError: the bytes are damaged, or are not the weights of a transformer.
        """
        arrays, facts = arrays_from_bytes(stored)
        told = {name: facts.get(name, default) for name, default in _FACTS.items()}
        heads, weighted, vector, positions = told.values()
        if (
            not (heads.isascii() and heads.isdecimal() and len(heads) < 4)
            or not {weighted, positions} <= {"True", "False"}
            or vector not in ("sum", "kind")
        ):
            raise _refused(
                "their facts cannot be read",
                str(facts)[:100],
                "heads: 1 to 999, distance_weighting, positional_encoding: True or False, operation_vector: sum, kind",
            )
        return cls(arrays, int(heads), weighted == "True", vector, positions == "True")


def _refused(reason: str, given: object, allowed: object) -> ZooError:
    return damaged_entry(f"the stored weights of a transformer are refused: {reason}", given, allowed)


class StoredEncoder:
    """A transformer that is evaluated in numpy."""

    def __init__(self, weights: TransformerWeights) -> None:
        self._weights, self._arrays = weights, weights.arrays

    def to_bytes(self) -> bytes:
        """Refuse: a transformer that was read from a file is copied with its zoo entry, not stored anew.

        Raises ZooError: always.
        """
        raise not_trained(self, "a transformer in torch, as `fit_transformer` returns it")

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
    ) -> tuple[FloatArray, FloatArray]:
        """See `Encoder`.

        Raises ZooError: a kind is not in the vocabulary, or memory does not suffice for a network of this length.
        """
        try:
            vectors = self._vectors(values, families, kinds)
        except (IndexError, MemoryError) as error:
            raise ZooError(
                "this transformer cannot compute a prediction",
                given=str(error)[:200],
                allowed="kinds of its vocabulary, and memory that grows with the square of a network's length",
                hint="use another predictor, or free memory",
            ) from error
        in_network = np.concatenate([vectors, values[:, :, 0, -IN_NETWORK:]], axis=-1)
        networks = (in_network * shares[..., None]).sum(axis=1)
        return (self._linear("operation_head.", vectors) * UNIT).astype(np.float64), networks.astype(np.float64)

    def _vectors(self, values: Floats, families: NDArray[np.int64], kinds: NDArray[np.int64]) -> Floats:
        """A vector for each operation, shape (sequences, operations, width)."""
        arrays, width, roles = self._arrays, self._weights.width, len(ROLES)
        flat = np.clip(values, arrays["lowest"], arrays["highest"]).reshape(-1, roles, WIDTH)
        # Each role has weights of its own, so this is one product for each role.
        tokens = (flat.transpose(1, 0, 2) @ arrays["read"]).transpose(1, 0, 2) + arrays["roles"]
        # The vectors of family and kind are added to the first token only.
        tokens[:, 0] += arrays["family.weight"][families.ravel()] + arrays["kind.weight"][kinds.ravel()]
        tokens = self._stack("over_network", tokens.reshape(len(families), -1, width)).reshape(-1, roles, width)
        tokens = self._stack("over_operation", tokens)
        by_kind = self._weights.operation_vector == "kind"
        vectors = tokens[:, 0] if by_kind else tokens.sum(axis=1) / np.float32(math.sqrt(roles))
        vectors = vectors.reshape(*families.shape, width)
        if self._weights.positional_encoding:
            vectors = vectors + sinusoids(families.shape[1], width)
        return self._stack("over_kinds", vectors)

    def _stack(self, stack: str, vectors: Floats) -> Floats:
        for name in self._weights.layers(stack):
            attended = self._attention(name, vectors)
            vectors = self._normalized(f"{name}norms.0.", vectors + self._linear(f"{name}gather.", attended))
            widened = gelu(self._linear(f"{name}widen.", vectors))
            vectors = self._normalized(f"{name}norms.1.", vectors + self._linear(f"{name}narrow.", widened))
        return vectors

    def _linear(self, name: str, vectors: Floats) -> Floats:
        weight, bias = self._arrays[f"{name}weight"], self._arrays[f"{name}bias"]
        rows = vectors.reshape(-1, vectors.shape[-1]) @ weight.T  # One product is quicker than one for each sequence.
        rows += bias
        return rows.reshape(*vectors.shape[:-1], len(bias))

    def _normalized(self, name: str, vectors: Floats) -> Floats:
        if f"{name}weight" not in self._arrays:
            return vectors
        off = vectors - vectors.mean(axis=-1, keepdims=True)
        unit = off / np.sqrt((off * off).mean(axis=-1, keepdims=True) + np.float32(_NORM_EPSILON))
        return np.asarray(unit * self._arrays[f"{name}weight"] + self._arrays[f"{name}bias"])

    def _attention(self, name: str, vectors: Floats) -> Floats:
        sequences, length, width = vectors.shape
        size = width // self._weights.heads
        parts = self._linear(f"{name}attend.", vectors).reshape(sequences, length, 3, -1, size)
        if length == 1:  # The softmax over a single score is 1.
            return parts[:, :, 2].reshape(vectors.shape)
        found = np.empty((sequences, length, self._weights.heads, size), np.float32)
        place = np.arange(length, dtype=np.float32)
        nearness = 1 - np.abs(place[:, None] - place) / np.float32(length)
        # One head after the other: scores grow with the square of a network's length.
        for head in range(self._weights.heads):
            queries, keys, values = (parts[:, :, part, head] for part in range(3))
            # Queries are scaled instead of scores: scores are many, and each pass over them takes time.
            scores = (queries / np.float32(math.sqrt(size))) @ keys.transpose(0, 2, 1)
            if self._weights.distance_weighting:
                scores *= nearness
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            found[:, :, head] = (scores @ values) / scores.sum(axis=-1, keepdims=True)
        return found.reshape(vectors.shape)
