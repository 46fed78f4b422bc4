"""A transformer through ONNX Runtime, written from its weights: the arithmetic of `OperationTransformer.forward`.

Predicting needs no torch, and loading runs no code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..formats import onnx
from ..regressors.trees import not_trained
from .tokens import IN_NETWORK, ROLES, WIDTH
from .weights import TransformerWeights

INPUTS: tuple[str, ...] = ("values", "families", "kinds", "shares")
OUTPUTS: tuple[str, ...] = ("operations", "networks")
"""Names of the model's inputs and outputs, in the order of `Encoder`."""

UNIT = 0.5
"""Typical size of an operation's log ratio. The head predicts log ratios in this unit, so its outputs are about 1."""

_IR_VERSION, _OPERATORS = 9, 20
_FLOAT = 1  # TensorProto.data_type
_SIZES = ("sequences", "operations")
_Split = Callable[[str, int], str]
"""Rows of a matrix and their width -> the same numbers, shape (sequences, rows of a sequence, width).

The rows of one sequence attend to one another.
"""


def transformer_to_onnx(weights: TransformerWeights, *, alone: bool = False) -> bytes:
    """Write the model for ONNX Runtime; its inputs and outputs are those of `Encoder`.

    Args:
        weights: Weights of the transformer.
        alone: Whether every sequence has a single operation. Such a model takes a fifth less time.

    Returns:
        A serialized ONNX model.
    """
    graph = _Graph(weights, alone)
    vectors = graph.vectors()
    head = graph.linear(vectors, *(UNIT * weights.arrays[f"operation_head.{part}"] for part in ("weight", "bias")))
    graph.by_sequence(head, 2, to=["operations"])
    relation = graph.node("Slice", ["values", *map(graph.integers, ([0, WIDTH - IN_NETWORK], [1, WIDTH], [2, 3]))])
    relation = graph.reshaped(relation, [0, 0, IN_NETWORK])
    vectors = graph.by_sequence(vectors, weights.width)
    in_network = graph.node("Concat", [vectors, relation], onnx.whole("axis", 2))
    weighted = graph.node("Mul", [in_network, graph.node("Unsqueeze", ["shares", graph.integers([2])])])
    graph.sum(weighted, to=["networks"])
    value = onnx.value
    ends = [
        value(onnx.INPUT, "values", np.float32, [*_SIZES, len(ROLES), WIDTH]),
        value(onnx.INPUT, "families", np.int64, _SIZES),
        value(onnx.INPUT, "kinds", np.int64, _SIZES),
        value(onnx.INPUT, "shares", np.float32, _SIZES),
        value(onnx.OUTPUT, "operations", np.float32, [*_SIZES, 2]),
        value(onnx.OUTPUT, "networks", np.float32, [_SIZES[0], weights.width + IN_NETWORK]),
    ]
    return onnx.model([*graph.parts, *ends], ir_version=_IR_VERSION, default=_OPERATORS)


def frequencies(width: int) -> NDArray[np.float32]:
    """Radians per place of each pair of a sine and a cosine that encode positions, shape (width / 2,).

    Their wavelengths reach from 2 pi to 10,000 times that (Vaswani et al., Attention Is All You Need, 2017, section
    3.5).
    """
    pairs = width // 2
    return (10_000.0 ** (-np.arange(pairs) / pairs)).astype(np.float32)


class _Graph:
    """The nodes and constants of a transformer, in order. Methods take and return the names of results."""

    def __init__(self, weights: TransformerWeights, alone: bool) -> None:
        self.parts: list[bytes] = []
        self._weights, self._alone = weights, alone
        self._constants: dict[bytes, str] = {}

    def node(self, operator: str, inputs: list[str], *attributes: bytes, to: list[str] | None = None) -> str:
        """Add a node, and return its first output."""
        outputs = to or [f"{operator} {len(self.parts)}"]
        self.parts.append(onnx.node(operator, inputs, outputs, *attributes))
        return outputs[0]

    def constant(self, values: NDArray[Any] | np.float32) -> str:
        """Add a constant, unless the graph has the same one already."""
        values = np.asarray(values)
        key = repr((values.dtype, values.shape)).encode() + values.tobytes()
        if key not in self._constants:
            self._constants[key] = f"constant {len(self.parts)}"
            self.parts.append(onnx.initializer(self._constants[key], values))
        return self._constants[key]

    def integers(self, values: list[int]) -> str:
        """Add a constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def stored(self, name: str) -> str:
        """Add the weights of this name as a constant."""
        return self.constant(self._weights.arrays[name])

    def linear(self, vectors: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        """A linear layer over the rows of a matrix.

        Args:
            vectors: Name of the matrix, shape (rows, inputs).
            weight: Shape (outputs, inputs).
            bias: Shape (outputs,).
        """
        columns = np.ascontiguousarray(weight.T)
        return self.node("Gemm", [vectors, self.constant(columns), self.constant(bias)])

    def reshaped(self, vectors: str, shape: list[int]) -> str:
        """The same numbers in another shape, where 0 stands for an unchanged size and -1 for the remaining size."""
        return self.node("Reshape", [vectors, self.integers(shape)])

    def by_sequence(self, rows: str, width: int, to: list[str] | None = None) -> str:
        """The rows of a matrix grouped by sequence, shape (sequences, rows of a sequence, width)."""
        sequences = self.node("Shape", ["families"], onnx.whole("end", 1))
        shape = self.node("Concat", [sequences, self.integers([-1, width])], onnx.whole("axis", 0))
        return self.node("Reshape", [rows, shape], to=to)

    def transposed(self, vectors: str, *order: int) -> str:
        """The axes in another order."""
        return self.node("Transpose", [vectors], onnx.integers("perm", np.array(order)))

    def sum(self, vectors: str, to: list[str] | None = None) -> str:
        """The sum over the second axis."""
        return self.node("ReduceSum", [vectors, self.integers([1])], onnx.whole("keepdims", 0), to=to)

    def vectors(self) -> str:
        """A vector for each operation, sequence after sequence, as the rows of a matrix."""
        width = self._weights.width
        vectors = self.reshaped(self._read(), [-1, width])
        vectors = self._stack("over_network", vectors, self._by_operation if self._alone else self.by_sequence)
        vectors = self._stack("over_operation", vectors, self._by_operation)
        vectors = self._operation_vectors(self._by_operation(vectors, width))
        if self._weights.positional_encoding:
            vectors = self._placed(vectors, width)
        return self._stack("over_kinds", vectors, None if self._alone else self.by_sequence)

    def _operation_vectors(self, tokens: str) -> str:
        """One vector per operation, as the rows of a matrix, from those of its tokens."""
        if self._weights.operation_vector == "kind":
            return self.node("Gather", [tokens, self.constant(np.array(0))], onnx.whole("axis", 1))
        return self.node("Div", [self.sum(tokens), self.constant(np.float32(math.sqrt(len(ROLES))))])

    def _placed(self, rows: str, width: int) -> str:
        """Vectors of operations with sinusoids of their place in the sequence added."""
        vectors = self.by_sequence(rows, width)
        places = self.node("Unsqueeze", [self._places(vectors)[0], self.integers([1])])
        angles = self.node("Mul", [places, self.constant(frequencies(width)[None])])
        waves = [self.node(wave, [angles]) for wave in ("Sin", "Cos")]
        placed = self.node("Add", [vectors, self.node("Concat", waves, onnx.whole("axis", 1))])
        return self.reshaped(placed, [-1, width])

    def _by_operation(self, rows: str, width: int) -> str:
        return self.reshaped(rows, [-1, len(ROLES), width])

    def _read(self) -> str:
        """The vectors of tokens, shape (operations of all sequences, roles, width)."""
        roles = len(ROLES)
        values = self.node("Max", ["values", self.stored("lowest")])
        values = self.node("Min", [values, self.stored("highest")])
        # Each role has weights of its own, so this is a batched product with one product for each role.
        by_role = self.transposed(self.reshaped(values, [-1, roles, WIDTH]), 1, 0, 2)
        read = self.transposed(self.node("MatMul", [by_role, self.stored("read")]), 1, 0, 2)
        read = self.node("Add", [read, self.stored("roles")])
        names = [
            self.node("Gather", [self.stored(f"{n}.weight"), f]) for n, f in (("family", "families"), ("kind", "kinds"))
        ]
        named = self.reshaped(self.node("Add", names), [-1, 1, self._weights.width])
        # The vectors of family and kind are added to the first token only.
        first = self.constant(np.eye(roles, 1, dtype=np.float32))
        return self.node("Add", [read, self.node("Mul", [named, first])])

    def _stack(self, stack: str, vectors: str, split: _Split | None) -> str:
        """The layers of a stack; without `split`, each sequence is a single vector."""
        nearness = None
        if split is not None and self._weights.distance_weighting:
            nearness = self._nearness(split(vectors, self._weights.width))
        for name in self._weights.layers(stack):
            # The softmax over a single score is 1, so attention within one vector gives its values unchanged.
            attended = self._values(vectors, name) if split is None else self._attention(vectors, name, split, nearness)
            vectors = self.node("Add", [vectors, self._of_layer(attended, f"{name}gather.")])
            vectors = self._normalized(vectors, name, 0)
            widened = self.node("Gelu", [self._of_layer(vectors, f"{name}widen.")])
            vectors = self.node("Add", [vectors, self._of_layer(widened, f"{name}narrow.")])
            vectors = self._normalized(vectors, name, 1)
        return vectors

    def _of_layer(self, vectors: str, name: str) -> str:
        return self.linear(vectors, self._weights.arrays[f"{name}weight"], self._weights.arrays[f"{name}bias"])

    def _normalized(self, vectors: str, layer: str, number: int) -> str:
        if not self._weights.normalized(layer):
            return vectors
        norm = f"{layer}norms.{number}."
        return self.node("LayerNormalization", [vectors, self.stored(f"{norm}weight"), self.stored(f"{norm}bias")])

    def _values(self, vectors: str, name: str) -> str:
        """The values of attention for each vector, heads side by side, shape (rows, width)."""
        weight, bias = (self._weights.arrays[f"{name}attend.{part}"] for part in ("weight", "bias"))
        return self.linear(vectors, np.split(weight, 3)[2], np.split(bias, 3)[2])

    def _attention(self, vectors: str, name: str, split: _Split, nearness: str | None) -> str:
        arrays, heads, width = self._weights.arrays, self._weights.heads, self._weights.width
        size = width // heads
        # The weights of queries are scaled instead of the scores, which are many.
        scales = np.array([1 / math.sqrt(size), 1, 1], np.float32)[:, None, None]
        biases = arrays[f"{name}attend.bias"].reshape(3, heads, size) * scales
        weights = arrays[f"{name}attend.weight"].reshape(3, heads, size, width) * scales[..., None]
        found = []
        # Each head is computed by itself, because heads side by side would need a transposition of all vectors.
        for head in range(heads):
            parts = [split(self.linear(vectors, weights[part, head], biases[part, head]), size) for part in range(3)]
            queries, keys, values = parts
            scores = self.node("MatMul", [queries, self.transposed(keys, 0, 2, 1)])
            if nearness is not None:
                scores = self.node("Mul", [scores, nearness])
            found.append(self.node("MatMul", [self.node("Softmax", [scores]), values]))
        return self.reshaped(self.node("Concat", found, onnx.whole("axis", 2)), [-1, width])

    def _nearness(self, vectors: str) -> str:
        """The weight of every pair of vectors: 1 - distance / length, shape (length, length) of the sequence."""
        place, length = self._places(vectors)
        column = self.node("Unsqueeze", [place, self.integers([1])])
        distance = self.node("Abs", [self.node("Sub", [column, place])])
        return self.node("Sub", [self.constant(np.float32(1)), self.node("Div", [distance, length])])

    def _places(self, vectors: str) -> tuple[str, str]:
        """The places of the vectors of a sequence, from 0 on, and how many there are."""
        shape = self.node("Shape", [vectors])
        length = self.node("Gather", [shape, self.constant(np.array(1))])
        length = self.node("Cast", [length], onnx.whole("to", _FLOAT))
        zero, one = self.constant(np.float32(0)), self.constant(np.float32(1))
        return self.node("Range", [zero, length, one]), length


_WHAT = (
    "this transformer",
    "onnxruntime 1.20 or newer, and memory that grows with the square of a network's length",
    "use another predictor, or free memory",
)


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
        ...

    def to_bytes(self) -> bytes:
        """The weights as the bytes of a file.

        Raises:
            ZooError: It was not trained, but read from a file.
        """
        ...


class OnnxEncoder:
    """A transformer that is evaluated by ONNX Runtime.

    Args:
        weights: Weights as they were stored.

    Raises:
        ZooError: The installed ONNX Runtime refuses the transformer.
    """

    def __init__(self, weights: TransformerWeights) -> None:
        self._weights = weights
        self._alone = _session(weights, alone=True)

    def to_bytes(self) -> bytes:
        """Refuse: a transformer that was read from a file is copied with its zoo entry, not stored anew.

        Raises:
            ZooError: Always.
        """
        raise not_trained(self, "a transformer in torch, as `fit_transformer` returns it")

    @cached_property
    def _together(self) -> Any:
        # Made on first use, because most callers ask for operations by themselves only.
        return _session(self._weights, alone=False)

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
    ) -> tuple[FloatArray, FloatArray]:
        """See `Encoder`.

        Raises:
            ZooError: ONNX Runtime failed. With tens of thousands of operations in a network it may lack memory.
        """
        given = dict(zip(INPUTS, (values, families, kinds, shares), strict=True))
        session = self._alone if families.shape[1] == 1 else self._together
        try:
            operations, networks = session.run(list(OUTPUTS), given)
        except Exception as error:
            raise onnx.refused(error, *_WHAT) from error
        return operations.astype(np.float64), networks.astype(np.float64)


def _session(weights: TransformerWeights, *, alone: bool) -> Any:
    return onnx.session(transformer_to_onnx(weights, alone=alone), *_WHAT)
