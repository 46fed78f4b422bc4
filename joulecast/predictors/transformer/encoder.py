"""A transformer in numpy, from its weights: the arithmetic of `OperationTransformer.forward`.

Predicting needs no torch, and loading runs no code.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError
from ..regressors.trees import not_trained
from .tokens import IN_NETWORK, ROLES, WIDTH
from .weights import TransformerWeights

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
