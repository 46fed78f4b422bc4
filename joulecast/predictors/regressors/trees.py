"""Trees: a sum of decision trees, stored as a few arrays.

Nodes are stored in preorder: a node, then all nodes below it where its condition holds, then all where it does not. So
the structure follows from which nodes are leaves, and no file, however damaged, can describe a cycle or a missing
child. This takes a fourteenth of the bytes of the same forest as ONNX. ONNX Runtime gets a model that is written from
the arrays (trees_onnx.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError, damaged_entry
from ..formats.arrays import arrays_from_bytes, arrays_to_bytes


def trees_file(name: str) -> str:
    """Name of the file that holds the trees of a regressor: "time.safetensors"."""
    return f"{name}.safetensors"


_KIND = "trees"
_MOST_NODES = 1 << 22
_MOST_COLUMNS = 1 << 12
# ONNX Runtime adds nodes by recursion: deeper trees would overflow its stack. Trees of 30,000 measurements have 40.
_MOST_LEVELS = 256


@dataclass(frozen=True)
class Trees:
    """A sum of decision trees.

    Args:
        columns: Number of inputs.
        below: Whether a condition is input < threshold; otherwise input <= threshold.
        base: Constant that is added to the sum.
        is_leaf: Whether each node is a leaf, in preorder, tree after tree.
        inputs: Index of the input that each inner node looks at.
        thresholds: Threshold that each inner node compares it with.
        values: Value of each leaf.

    Raises:
        ZooError: They do not make trees, or trees deeper or larger than allowed.
    """

    columns: int
    below: bool
    base: float
    is_leaf: NDArray[np.bool_]
    inputs: NDArray[np.uint16]
    thresholds: NDArray[np.float32]
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        leaves = int(np.count_nonzero(self.is_leaf))
        numbers = {"thresholds": self.thresholds, "values": self.values, "base": np.array([self.base])}
        if not 0 < len(self.is_leaf) <= _MOST_NODES:
            raise _refused("the number of nodes is out of range", len(self.is_leaf), f"1 to {_MOST_NODES}")
        if not 0 < self.columns <= _MOST_COLUMNS:
            raise _refused("the number of inputs is out of range", self.columns, f"1 to {_MOST_COLUMNS}")
        counts = (len(self.values), len(self.inputs), len(self.thresholds))
        inner = len(self.is_leaf) - leaves
        if counts != (leaves, inner, inner):
            raise _refused("the lengths of its arrays do not match its nodes", counts, (leaves, inner, inner))
        if inner and int(self.inputs.max()) >= self.columns:
            last = self.columns - 1
            raise _refused("a node compares an input that does not exist", int(self.inputs.max()), f"0 to {last}")
        for name, array in numbers.items():
            if not np.isfinite(array).all():
                raise _refused(f"a number in its {name} is not finite", None, "finite numbers")
        self.levels()

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Index of each tree's first node.

        Raises:
            ZooError: The last tree is incomplete.
        """
        # An open branch is a place for a node that is still to come. A tree starts with one; an inner node adds one,
        # and a leaf closes one. The tree ends where the last branch is closed.
        owed = np.cumsum(self._owes())
        ends = np.flatnonzero(np.diff(np.minimum.accumulate(np.minimum(owed, 0)), prepend=0) < 0)
        if len(ends) == 0 or ends[-1] != len(owed) - 1:
            raise _refused("its last tree is incomplete", None, "nodes in preorder")
        return np.concatenate([[0], ends[:-1] + 1])

    @cached_property
    def otherwise(self) -> NDArray[np.int64]:
        """For each inner node, the node to go to if its condition does not hold. If it holds, that is the next node."""
        owes = self._owes()
        before = np.cumsum(owes) - owes
        # All nodes below the next node have more open branches than this one. So the node to go to otherwise is the
        # next one with as many open branches as this one.
        fits = before.min() >= -(1 << 15) and before.max() < 1 << 15
        order = np.argsort(before.astype(np.int16) if fits else before, kind="stable")
        following = np.zeros(len(before), np.int64)
        following[order[:-1]] = order[1:]
        return following[~self.is_leaf]

    def _owes(self) -> NDArray[np.int64]:
        return 1 - 2 * self.is_leaf.astype(np.int64)

    def levels(self) -> int:
        """Number of levels of the deepest tree.

        Raises:
            ZooError: More than any can have.
        """
        level = self.starts
        otherwise = np.zeros(len(self.is_leaf), np.int64)
        otherwise[~self.is_leaf] = self.otherwise
        for levels in range(1, _MOST_LEVELS + 1):
            inner = level[~self.is_leaf[level]]
            if len(inner) == 0:
                return levels
            level = np.concatenate([inner + 1, otherwise[inner]])
        raise _refused("a tree is too deep", None, f"up to {_MOST_LEVELS} levels")

    def sums(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of all trees and the base for each row of inputs.

        Equal to ONNX Runtime's sums to the last bit, and for a few hundred rows quicker than starting ONNX Runtime.
        """
        is_leaf, number = self.is_leaf, self.numbers
        rows = len(inputs)
        # Tree by tree, so that a sum over trees adds them in their order.
        found = np.empty(len(self.starts) * rows, np.float32)
        place, node = np.arange(len(found)), np.repeat(self.starts, rows)
        flat = np.ascontiguousarray(inputs).reshape(-1)
        first = np.tile(np.arange(rows) * self.columns, len(self.starts))
        while len(node):
            ends = is_leaf[node]
            found[place[ends]] = self.values[number[node[ends]]]
            place, node = place[~ends], node[~ends]
            inner = number[node]
            value, threshold = flat[first[place] + self.inputs[inner]], self.thresholds[inner]
            holds = value < threshold if self.below else value <= threshold
            node = np.where(holds, node + 1, self.otherwise[inner])
        by_tree = found.reshape(-1, rows)
        total: NDArray[np.float32] = (
            # For a single row numpy would add pairwise, in another order than for many rows.
            np.add.accumulate(by_tree, axis=0, dtype=np.float32)[-1]
            if rows == 1
            else np.add.reduce(by_tree, axis=0, dtype=np.float32)
        )
        return total + np.float32(self.base)

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """For each node, its number among the inner nodes or among the leaves."""
        return np.where(self.is_leaf, np.cumsum(self.is_leaf), np.cumsum(~self.is_leaf)) - 1

    def to_bytes(self) -> bytes:
        """The trees as arrays in the safetensors format."""
        arrays: dict[str, NDArray[Any]] = {
            "is_leaf": np.packbits(self.is_leaf),
            "inputs": self.inputs.astype(np.uint16),
            # Files compress better if bytes of equal significance are stored side by side.
            "thresholds": _by_significance(self.thresholds),
            "values": _by_significance(self.values),
        }
        facts = {
            "kind": _KIND,
            "nodes": str(len(self.is_leaf)),
            "columns": str(self.columns),
            "condition": "<" if self.below else "<=",
            "base": float(self.base).hex(),
        }
        return arrays_to_bytes(arrays, facts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            ZooError: The bytes are damaged, or are not trees.
        """
        arrays, facts = arrays_from_bytes(data)
        try:
            if facts["kind"] != _KIND or facts["condition"] not in ("<", "<="):
                raise ValueError(f"{facts['kind']}, {facts['condition']}")
            nodes, bits = int(facts["nodes"]), arrays["is_leaf"]
            if bits.dtype != np.uint8 or bits.ndim != 1 or not 0 <= nodes <= 8 * len(bits):
                raise ValueError("is_leaf")
            if arrays["inputs"].dtype != np.uint16 or arrays["inputs"].ndim != 1:
                raise ValueError("inputs")
            return cls(
                columns=int(facts["columns"]),
                below=facts["condition"] == "<",
                base=float.fromhex(facts["base"]),
                is_leaf=np.unpackbits(bits, count=nodes).astype(bool),
                inputs=arrays["inputs"],
                thresholds=_floats(arrays["thresholds"]),
                values=_floats(arrays["values"]),
            )
        except (KeyError, ValueError, OverflowError) as error:
            raise _refused(
                "an array or a fact is missing or has another type", error, "trees that joulecast stored"
            ) from error


def _by_significance(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values.astype("<f4").view(np.uint8).reshape(-1, 4).T)


def _floats(planes: NDArray[Any]) -> NDArray[np.float32]:
    if planes.dtype != np.uint8 or planes.ndim != 2 or planes.shape[0] != 4:
        raise ValueError(f"numbers in {planes.dtype} of shape {planes.shape} instead of uint8 of shape (4, numbers)")
    return np.ascontiguousarray(planes.T).view("<f4").reshape(-1)


def _refused(reason: str, given: object, allowed: object) -> ZooError:
    return damaged_entry(f"stored trees are damaged: {reason}", given, allowed)
