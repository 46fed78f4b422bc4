"""A transformer over the operations of a network, after DeepPM (Shim et al., DATE 2022): its weights and arithmetic.

DeepPM reads a basic block of x86 code, which consists of instructions, which consist of tokens. Here a network consists
of operations, which consist of tokens. Three encoder stacks follow one another: over all tokens of the network, over
the tokens of one operation, and over one vector for each operation, the sum of its tokens. Attention scores shrink with
the distance of two tokens, and residuals are added without layer norm. A linear head predicts the time of each
operation from its vector. What else DeepPM's form has makes no difference here (benchmarks/deeppm_variants.py).

The arithmetic is the same in numpy, which predicts, and in torch, which trains (fit.py).

An operation has six tokens, each with a role: how it runs (kind), its sizes as a batched product (batch, rows, columns,
reduction), and the features of trees (physics). A token is a vector of numbers. All numbers that depend on the
GPU are relative to it and hold at its default clock, at which operations are measured (relative.py). Ratios that are
learned there are taken to hold at other clocks, where only the least time changes.

A size is encoded several times in its token: as a logarithm, as its position between powers of two (piecewise linear
encoding, Gorishniy et al., NeurIPS 2022, so that each octave can be learned separately), by how well it fills tiles,
and by its divisors. In a single training run, the positions between powers of two lowered the mean error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError
from ...hardware import GPU
from ...operations.kinds import KINDS
from ...operations.operation_list import OperationList
from ..formats.numbers import arrays_to_bytes, known_arrays
from ..physics.operation_numbers import FAMILIES, numbers_of
from ..physics.relative import MACHINE_NAMES, RELATIVE_NAMES, relative_features
from ..physics.tiling import padded
from ..recipes import TransformerRecipe

_SIZES = ("batch", "rows", "columns", "reduction")
ROLES: tuple[str, ...] = ("kind", *_SIZES, "physics")
"""The roles of the tokens of an operation, in their order."""

# Features that stand in the token `kind` already, as vectors of the family and the kind.
_PHYSICS = [place for place, name in enumerate(RELATIVE_NAMES) if not name.startswith(("family_", "kind_"))]
PHYSICS_NAMES: tuple[str, ...] = tuple(RELATIVE_NAMES[place] for place in _PHYSICS)
"""Names of the numbers of the token `physics`: features of relative.py, scaled by units that training determines."""

MACHINE = [PHYSICS_NAMES.index(name) for name in MACHINE_NAMES]
"""Places of the numbers of the token `physics` that describe the GPU."""

# These features are not logarithms, and differ between operations by factors of a thousand.
_NO_LOGARITHMS = [place for place, name in enumerate(PHYSICS_NAMES) if not name.startswith("log_")]

WIDTH = max(34, len(PHYSICS_NAMES))
"""Numbers per token; the numbers that a role does not use are zero."""

UNKNOWN = ""
"""The first kind of every vocabulary, which stands for all kinds that were not in the training data."""

_FILLS = (32, 64, 128)
_DIVISORS = (2, 4, 8, 16, 32, 64, 128)


class Tokens(NamedTuple):
    """Operations on one GPU as tokens.

    Args:
        values: The tokens of each operation, shape (operations, len(ROLES), WIDTH).
        families: Index of each operation's family in FAMILIES, shape (operations,).
        kinds: Index of each operation's kind in a vocabulary, shape (operations,).
    """

    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]


def tokens(operations: OperationList, gpu: GPU, vocabulary: Sequence[str]) -> Tokens:
    """Describe operations on a GPU.

    The vocabulary has the kinds with vectors of their own, UNKNOWN first. Raises InputError: the GPU does not support
    the precision of an operation.
    """
    n = numbers_of(operations)
    values = np.zeros((len(operations), len(ROLES), WIDTH), dtype=np.float32)
    for place, name in enumerate(_SIZES, 1):
        size = _one_size(getattr(n, name))
        values[:, place, : size.shape[1]] = size
    seen = relative_features(operations, gpu)[:, _PHYSICS]
    seen[:, _NO_LOGARITHMS] = np.arcsinh(seen[:, _NO_LOGARITHMS])
    values[:, -1, : len(PHYSICS_NAMES)] = seen
    known = {kind: place for place, kind in enumerate(vocabulary)}
    places = np.array([known.get(kind, 0) for kind in KINDS], dtype=np.int64)
    return Tokens(values, n.family.astype(np.int64), places[n.kind.astype(np.int64)])


def _one_size(n: FloatArray) -> FloatArray:
    octave = np.log2(n)
    # Only the two powers of two next to a size have weights above zero: 2^2.25 gives 0.75 for 4 and 0.25 for 8.
    between = np.maximum(0.0, 1 - np.abs(np.minimum(octave, 20)[:, None] - np.arange(21)))
    return np.column_stack(
        [
            between,
            octave / 6,
            n / 2 ** np.ceil(octave),
            *(n / padded(n, tile) for tile in _FILLS),
            *(n % divisor == 0 for divisor in _DIVISORS),
        ]
    )


UNIT = 0.5
"""Typical size of an operation's log ratio. The head predicts log ratios in this unit, so its outputs are about 1."""

Floats = NDArray[np.float32]
_KIND = "transformer"
_ROOT, _CUBIC, _ONE_HALF = np.float32((2 / np.pi) ** 0.5), np.float32(0.044715), np.float32(0.5)


def gelu(values: Floats) -> Floats:
    """As torch.nn.GELU(approximate="tanh"): Hendrycks and Gimpel, 2016, https://arxiv.org/abs/1606.08415."""
    bent: Floats = np.tanh(_ROOT * values * (1 + _CUBIC * values * values))
    bent += 1
    bent *= values
    bent *= _ONE_HALF
    return bent


def softmax(scores: Floats, axis: int) -> Floats:
    """Exponentials that sum up to one along an axis; the scores are overwritten."""
    scores -= scores.max(axis=axis, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=axis, keepdims=True)
    return scores


class Functions(NamedTuple):
    """What numpy and torch call differently."""

    gelu: Callable[[Any], Any]
    softmax: Callable[[Any, int], Any]
    array: Callable[[Floats], Any]


NUMPY = Functions(gelu, softmax, np.asarray)
"""The functions of an `Encoder` that predicts."""


def layers_of(recipe: TransformerRecipe) -> dict[str, int]:
    """The prefix of each layer's array names, in their order -> width of its feed-forward part."""
    stacks = {
        "over_network": (recipe.network_layers, recipe.feed_forward),
        "over_operation": (recipe.operation_layers, recipe.feed_forward),
        "over_kinds": (recipe.kind_layers, recipe.kind_feed_forward),
    }
    return {
        f"{stack}.{number}": recipe.width * wide for stack, (count, wide) in stacks.items() for number in range(count)
    }


def shapes(recipe: TransformerRecipe, kinds: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every array of a transformer; `kinds` is the length of its vocabulary."""
    width = recipe.width
    found: dict[str, tuple[int, ...]] = {
        "read": (len(ROLES), WIDTH, width),
        "roles": (len(ROLES), width),
        "lowest": (len(ROLES), WIDTH),
        "highest": (len(ROLES), WIDTH),
        "family.weight": (len(FAMILIES), width),
        "kind.weight": (kinds, width),
        "head.weight": (1, width),
        "head.bias": (1,),
    }
    for layer, wide in layers_of(recipe).items():
        parts: dict[str, tuple[int, ...]] = {"attend": (3 * width, width), "gather": (width, width)}
        parts |= {"widen": (wide, width), "narrow": (width, wide)}
        for part, shape in parts.items():
            found |= {f"{layer}.{part}.weight": shape, f"{layer}.{part}.bias": shape[:1]}
    return found


class Encoder:
    """A transformer over tokens.

    Args:
        recipe: The settings that it was made with.
        weights: Arrays of numpy or torch by the names of `shapes`.
        functions: Those of the weights' library.
        curves: Loss of each pass of its training; empty where it was read from a file.
    """

    def __init__(
        self,
        recipe: TransformerRecipe,
        weights: Mapping[str, Any],
        functions: Functions = NUMPY,
        curves: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self.recipe, self.weights, self.functions, self.curves = recipe, weights, functions, curves or {}

    def __call__(self, values: Floats, families: NDArray[np.int64], kinds: NDArray[np.int64]) -> FloatArray:
        """Log ratios of operations' device time to that of physics, shape (sequences, operations).

        Raises ZooError: a kind is not in the vocabulary, or memory does not suffice for a sequence of this length.

        Args:
            values: Tokens, shape (sequences, operations, len(ROLES), WIDTH).
            families: Family of each operation, shape (sequences, operations).
            kinds: Kind of each operation, shape (sequences, operations).
        """
        try:
            found: FloatArray = self.log_ratios(values, families, kinds).astype(np.float64)
        except (IndexError, MemoryError) as error:
            raise ZooError(
                "this transformer cannot compute a prediction",
                given=str(error)[:200],
                allowed="kinds of its vocabulary, and memory that grows with the square of a sequence's length",
                hint="use another predictor, or free memory",
            ) from error
        return found

    def log_ratios(self, values: Any, families: Any, kinds: Any) -> Any:
        """See `__call__`, with arrays of the weights' library."""
        return self._linear("head", self.vectors(values, families, kinds))[..., 0] * UNIT

    def vectors(self, values: Any, families: Any, kinds: Any) -> Any:
        """A vector for each operation, shape (sequences, operations, width)."""
        vectors = self.of_tokens(values, families, kinds)
        vectors = self.stack("over_network", vectors.reshape(len(families), -1, self.recipe.width))
        vectors = self.stack("over_operation", vectors.reshape(-1, len(ROLES), self.recipe.width))
        return self.stack("over_kinds", self.of_operations(vectors).reshape(*families.shape, -1))

    def of_tokens(self, values: Any, families: Any, kinds: Any) -> Any:
        """A vector for each token, shape (sequences x operations, len(ROLES), width)."""
        w = self.weights
        # Inputs stay in the range of the training data, so that the transformer does not extrapolate, as trees do not.
        # An input that was constant in training thereby has no effect.
        flat = values.clip(w["lowest"], w["highest"]).reshape(-1, len(ROLES), WIDTH)
        # Each role has weights of its own, so this is one product for each role.
        vectors = (flat.swapaxes(0, 1) @ w["read"]).swapaxes(0, 1) + w["roles"]
        # The vectors of family and kind are added to the first token only.
        vectors[:, 0] += (w["family.weight"][families] + w["kind.weight"][kinds]).reshape(len(flat), -1)
        return vectors

    def of_operations(self, vectors: Any) -> Any:
        """A vector for each operation from those of its tokens, shape (sequences x operations, width)."""
        # The sum is divided by the square root of the number of tokens, so that it varies as much as one token does.
        return vectors.sum(1) / math.sqrt(len(ROLES))

    def stack(self, stack: str, vectors: Any) -> Any:
        """What the layers of a stack make of vectors, in their shape."""
        for name in layers_of(self.recipe):
            if name.startswith(stack):
                vectors = vectors + self.attention(name, vectors)
                vectors = vectors + self.feed_forward(name, vectors)
        return vectors

    def feed_forward(self, name: str, vectors: Any) -> Any:
        """What a layer makes of each vector by itself, in the shape of the vectors."""
        return self._linear(f"{name}.narrow", self.functions.gelu(self._linear(f"{name}.widen", vectors)))

    def attention(self, name: str, vectors: Any) -> Any:
        """What each vector gathers from all, shape (sequences, length, width)."""
        (sequences, length, width), heads = vectors.shape, self.recipe.heads
        gather, size = self.weights[f"{name}.gather.weight"], width // heads
        parts = self._linear(f"{name}.attend", vectors).reshape(sequences, length, 3, heads, size)
        found = self.weights[f"{name}.gather.bias"]
        # One head after the other: scores grow with the square of a sequence's length.
        for head in range(heads):
            queries, keys, seen = (parts[:, :, part, head] for part in range(3))
            if length > 1:  # The softmax over a single score is 1.
                seen = self.functions.softmax(self.scores(queries, keys), -1) @ seen
            found = found + seen @ gather[:, head * size : (head + 1) * size].T
        return found

    def scores(self, queries: Any, keys: Any) -> Any:
        """Attention scores, shape (sequences, length, length), of vectors of shape (sequences, length, numbers)."""
        # Queries are scaled instead of scores: scores are many, and each pass over them takes time.
        scores = (queries / math.sqrt(queries.shape[-1])) @ keys.swapaxes(1, 2)
        place = self.functions.array(np.arange(queries.shape[1], dtype=np.float32))
        scores *= 1 - abs(place[:, None] - place) / len(place)
        return scores

    def _linear(self, name: str, vectors: Any) -> Any:
        # One product is quicker than one for each sequence.
        rows = vectors.reshape(-1, vectors.shape[-1]) @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return rows.reshape(*vectors.shape[:-1], -1)

    def to_bytes(self) -> bytes:
        """The weights in the safetensors format; the same weights give the same bytes."""
        return arrays_to_bytes(self.weights, {"kind": _KIND})

    @classmethod
    def from_bytes(cls, recipe: TransformerRecipe, stored: bytes, kinds: int) -> Self:
        """Read what `to_bytes` wrote, of a transformer with a vocabulary of this length.

        Raises ZooError: the bytes are damaged. Raises ValueError: they are not the weights of such a transformer.
        """
        wanted = shapes(recipe, kinds)
        known = {name: ("float32", len(shape)) for name, shape in wanted.items()}
        arrays, _ = known_arrays(stored, _KIND, known)
        for name, shape in wanted.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} of a transformer has the shape {arrays[name].shape}, not {shape}")
        return cls(recipe, arrays)
