"""A transformer for ONNX Runtime, written from its weights: the same arithmetic as `OperationTransformer.forward`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import onnx_writer
from .tokens import IN_NETWORK, ROLES, WIDTH
from .weights import TransformerWeights

INPUTS: tuple[str, ...] = ("values", "families", "kinds", "shares")
OUTPUTS: tuple[str, ...] = ("operations", "networks")
"""Names of what the model takes and gives, in the order of `Encoder`."""

UNIT = 0.5
"""Log ratios of one operation are about so large; heads predict them in this unit."""

_IR_VERSION, _OPERATORS = 9, 20
_FLOAT = 1  # TensorProto.data_type
_SIZES = ("sequences", "operations")


def transformer_to_onnx(weights: TransformerWeights) -> bytes:
    """The model for ONNX Runtime; its inputs and outputs are those of `Encoder`."""
    graph = _Graph(weights)
    vectors = graph.vectors()
    head = graph.linear(vectors, "operation_head.")
    graph.node("Mul", [head, graph.constant(np.float32(UNIT))], to=["operations"])
    told = graph.node("Slice", ["values", *map(graph.integers, ([0, WIDTH - IN_NETWORK], [1, WIDTH], [2, 3]))])
    told = graph.node("Concat", [vectors, graph.reshaped(told, [0, 0, IN_NETWORK])], onnx_writer.whole("axis", 2))
    weighted = graph.node("Mul", [told, graph.node("Unsqueeze", ["shares", graph.integers([2])])])
    graph.sum(weighted, to=["networks"])
    value = onnx_writer.value
    ends = [
        value(onnx_writer.INPUT, "values", np.float32, [*_SIZES, len(ROLES), WIDTH]),
        value(onnx_writer.INPUT, "families", np.int64, _SIZES),
        value(onnx_writer.INPUT, "kinds", np.int64, _SIZES),
        value(onnx_writer.INPUT, "shares", np.float32, _SIZES),
        value(onnx_writer.OUTPUT, "operations", np.float32, [*_SIZES, 2]),
        value(onnx_writer.OUTPUT, "networks", np.float32, [_SIZES[0], weights.width + IN_NETWORK]),
    ]
    return onnx_writer.model([*graph.parts, *ends], ir_version=_IR_VERSION, default=_OPERATORS)


class _Graph:
    """Nodes and constants of a transformer, in order; each result is known by its name."""

    def __init__(self, weights: TransformerWeights) -> None:
        self.parts: list[bytes] = []
        self._weights = weights
        self._constants: dict[bytes, str] = {}

    def node(self, operator: str, inputs: list[str], *attributes: bytes, to: list[str] | None = None) -> str:
        """Add a node, and return its first output."""
        outputs = to or [f"{operator} {len(self.parts)}"]
        self.parts.append(onnx_writer.node(operator, inputs, outputs, *attributes))
        return outputs[0]

    def constant(self, values: NDArray[Any] | np.float32) -> str:
        """Add a constant, unless it is there already."""
        values = np.asarray(values)
        key = repr((values.dtype, values.shape)).encode() + values.tobytes()
        if key not in self._constants:
            self._constants[key] = f"constant {len(self.parts)}"
            self.parts.append(onnx_writer.initializer(self._constants[key], values))
        return self._constants[key]

    def integers(self, values: list[int]) -> str:
        """Add a constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def stored(self, name: str) -> str:
        """Add some of the weights."""
        return self.constant(self._weights.arrays[name])

    def linear(self, vectors: str, name: str) -> str:
        """A linear layer."""
        weight = self.constant(np.ascontiguousarray(self._weights.arrays[f"{name}weight"].T))
        return self.node("Add", [self.node("MatMul", [vectors, weight]), self.stored(f"{name}bias")])

    def reshaped(self, vectors: str, shape: list[int]) -> str:
        """The same numbers in another shape; 0 stands for a size that stays, -1 for what is left."""
        return self.node("Reshape", [vectors, self.integers(shape)])

    def transposed(self, vectors: str, *order: int) -> str:
        """The axes in another order."""
        return self.node("Transpose", [vectors], onnx_writer.integers("perm", np.array(order)))

    def sum(self, vectors: str, to: list[str] | None = None) -> str:
        """The sum over the second axis."""
        return self.node("ReduceSum", [vectors, self.integers([1])], onnx_writer.whole("keepdims", 0), to=to)

    def vectors(self) -> str:
        """A vector for each operation, shape (sequences, operations, width)."""
        width, roles = self._weights.width, len(ROLES)
        values = self.node("Max", ["values", self.stored("lowest")])
        values = self.node("Min", [values, self.stored("highest")])
        values = self.transposed(self.reshaped(values, [-1, roles, WIDTH]), 1, 0, 2)
        read = self.transposed(self.node("MatMul", [values, self.stored("read")]), 1, 0, 2)
        read = self.node("Add", [read, self.stored("roles")])
        names = [
            self.node("Gather", [self.stored(f"{n}.weight"), f]) for n, f in (("family", "families"), ("kind", "kinds"))
        ]
        named = self.reshaped(self.node("Add", names), [-1, 1, width])
        # Added to the first token alone.
        first = self.constant(np.eye(roles, 1, dtype=np.float32))
        vectors = self.node("Add", [read, self.node("Mul", [named, first])])
        vectors = self._by_sequence(vectors)
        for layer in self._weights.layers("over_network"):
            vectors = self._layer(vectors, layer)
        vectors = self.reshaped(vectors, [-1, roles, width])
        for layer in self._weights.layers("over_operation"):
            vectors = self._layer(vectors, layer)
        vectors = self._by_sequence(self.node("Div", [self.sum(vectors), self.constant(np.float32(math.sqrt(roles)))]))
        for layer in self._weights.layers("over_kinds"):
            vectors = self._layer(vectors, layer)
        return vectors

    def _by_sequence(self, vectors: str) -> str:
        """All vectors of a sequence along the second axis."""
        sequences = self.node("Shape", ["families"], onnx_writer.whole("end", 1))
        rest = self.integers([-1]), self.integers([self._weights.width])
        shape = self.node("Concat", [sequences, *rest], onnx_writer.whole("axis", 0))
        return self.node("Reshape", [vectors, shape])

    def _layer(self, vectors: str, name: str) -> str:
        gathered = self.linear(self._attention(vectors, name), f"{name}gather.")
        vectors = self._normalized(self.node("Add", [vectors, gathered]), name, 0)
        widened = self.node("Gelu", [self.linear(vectors, f"{name}widen.")])
        return self._normalized(self.node("Add", [vectors, self.linear(widened, f"{name}narrow.")]), name, 1)

    def _normalized(self, vectors: str, layer: str, number: int) -> str:
        if not self._weights.normalized(layer):
            return vectors
        norm = f"{layer}norms.{number}."
        return self.node("LayerNormalization", [vectors, self.stored(f"{norm}weight"), self.stored(f"{norm}bias")])

    def _attention(self, vectors: str, name: str) -> str:
        width, heads = self._weights.width, self._weights.heads
        parts = self.reshaped(self.linear(vectors, f"{name}attend."), [0, 0, 3, heads, width // heads])
        parts = self.transposed(parts, 2, 0, 3, 1, 4)
        # A number and no list takes its axis away.
        queries, keys, values = (self.node("Gather", [parts, self.constant(np.array(i))]) for i in range(3))
        queries = self.node("Div", [queries, self.constant(np.float32(math.sqrt(width // heads)))])
        scores = self.node("MatMul", [queries, self.transposed(keys, 0, 1, 3, 2)])
        if self._weights.distance_weighting:
            scores = self.node("Mul", [scores, self._nearness(vectors)])
        gathered = self.node("MatMul", [self.node("Softmax", [scores]), values])
        return self.reshaped(self.transposed(gathered, 0, 2, 1, 3), [0, 0, width])

    def _nearness(self, vectors: str) -> str:
        """1 less the distance of any two vectors of a sequence over its length."""
        shape = self.node("Shape", [vectors])
        length = self.node("Gather", [shape, self.constant(np.array(1))])
        length = self.node("Cast", [length], onnx_writer.whole("to", _FLOAT))
        zero, one = self.constant(np.float32(0)), self.constant(np.float32(1))
        place = self.node("Range", [zero, length, one])
        column = self.node("Unsqueeze", [place, self.integers([1])])
        distance = self.node("Abs", [self.node("Sub", [column, place])])
        return self.node("Sub", [one, self.node("Div", [distance, length])])
