"""Trees: a sum of decision trees, stored as a few arrays, evaluated with numpy or ONNX Runtime; what they ask.

Nodes are stored in preorder: a node, then all nodes below it where its condition holds, then all where it does not. So
the structure follows from which nodes are leaves, and no file, however damaged, can describe a cycle or a missing
child. This takes a fourteenth of the bytes of the same forest as ONNX. ONNX Runtime gets a model that is written from
the arrays. Loading an entry runs no code from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import damaged_entry
from ...operations.operation import Operation
from ..contract import INPUT_NAMES, Files
from ..formats import onnx
from ..formats.numbers import arrays_to_bytes, known_arrays, refusing_damage
from ..predictor import OperationPredictor


def trees_file(name: str) -> str:
    """Name of the file that holds the trees of a regressor: "time.safetensors"."""
    return f"{name}.safetensors"


_KIND = "trees"
_ARRAYS = {"is_leaf": ("uint8", 1), "inputs": ("uint16", 1), "thresholds": ("uint8", 2), "values": ("uint8", 2)}
_MOST_NODES = 1 << 22
_MOST_COLUMNS = 1 << 12
# ONNX Runtime adds nodes by recursion: deeper trees would overflow its stack. Trees of 30,000 measurements have 40.
_MOST_LEVELS = 256
_STEPS_AT_ONCE = 4  # Looking for rows that have reached a leaf takes as long as a step.


@dataclass(frozen=True)
class Trees:
    """A sum of decision trees.

    Raises ValueError: they do not make trees, or trees deeper or larger than allowed.

    Args:
        below: Whether a condition is input < threshold; otherwise input <= threshold.
        base: Constant that is added to the sum.
        is_leaf: Whether each node is a leaf, in preorder, tree after tree.
        inputs: Index of the input that each inner node looks at.
        thresholds: Threshold that each inner node compares it with.
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
        inner = len(self.is_leaf) - leaves
        if not 0 < len(self.is_leaf) <= _MOST_NODES:
            raise ValueError(f"the number of nodes is out of range: {len(self.is_leaf)}")
        if not 0 < self.columns <= _MOST_COLUMNS:
            raise ValueError(f"the number of inputs is out of range: {self.columns}")
        if (len(self.values), len(self.inputs), len(self.thresholds)) != (leaves, inner, inner):
            raise ValueError("the lengths of its arrays do not match its nodes")
        if self.inputs.max(initial=0) >= self.columns:
            raise ValueError("a node compares an input that does not exist")
        if not all(np.isfinite(numbers).all() for numbers in (self.thresholds, self.values, self.base)):
            raise ValueError("a number is not finite")
        self.levels()

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Index of each tree's first node. Raises ValueError: the last tree is incomplete."""
        # An open branch is a place for a node that is still to come. A tree starts with one; an inner node adds one,
        # and a leaf closes one. The tree ends where the last branch is closed.
        owed = np.cumsum(self._owes())
        ends = np.flatnonzero(np.diff(np.minimum.accumulate(np.minimum(owed, 0)), prepend=0) < 0)
        if len(ends) == 0 or ends[-1] != len(owed) - 1:
            raise ValueError("its last tree is incomplete")
        return np.concatenate([[0], ends[:-1] + 1])

    @cached_property
    def otherwise(self) -> NDArray[np.int64]:
        """For each inner node, the node to go to if its condition does not hold; for leaves the leaf itself.

        If the condition holds, that is the next node.
        """
        owes = self._owes()
        before = np.cumsum(owes) - owes
        # All nodes below the next node have more open branches than this one. So the node to go to otherwise is the
        # next one with as many open branches as this one.
        fits = before.min() >= -(1 << 15) and before.max() < 1 << 15
        order = np.argsort(before.astype(np.int16) if fits else before, kind="stable")
        following = np.zeros(len(before), np.int64)
        following[order[:-1]] = order[1:]
        return np.where(self.is_leaf, np.arange(len(before)), following)

    @cached_property
    def _conditions(self) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """For each node, the input that it compares, and the threshold; NaN for leaves, where no condition holds."""
        inputs, thresholds = np.zeros(len(self.is_leaf), np.intp), np.full(len(self.is_leaf), np.nan, np.float32)
        inputs[~self.is_leaf], thresholds[~self.is_leaf] = self.inputs, self.thresholds
        return inputs, thresholds

    def _owes(self) -> NDArray[np.int64]:
        return 1 - 2 * self.is_leaf.astype(np.int64)

    def levels(self) -> int:
        """Number of levels of the deepest tree. Raises ValueError: more than any can have."""
        level = self.starts
        for levels in range(1, _MOST_LEVELS + 1):
            inner = level[~self.is_leaf[level]]
            if len(inner) == 0:
                return levels
            level = np.concatenate([inner + 1, self.otherwise[inner]])
        raise ValueError(f"a tree is too deep: more than {_MOST_LEVELS} levels")

    def sums(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of all trees and the base for each row of inputs.

        Equal to ONNX Runtime's sums to the last bit, and for a few hundred rows quicker than starting ONNX Runtime.
        """
        rows, flat = len(inputs), np.ascontiguousarray(inputs).reshape(-1)
        asked, thresholds = self._conditions
        # Tree by tree, so that a sum over trees adds them in their order.
        node = np.repeat(self.starts, rows)
        first = np.tile(np.arange(rows) * self.columns, len(self.starts))
        leaves, place = np.empty_like(node), np.arange(len(node))
        while len(node):
            for _ in range(_STEPS_AT_ONCE):
                value, threshold = flat[first + asked[node]], thresholds[node]
                holds = value < threshold if self.below else value <= threshold
                node = np.where(holds, node + 1, self.otherwise[node])
            leaves[place] = node
            inner = ~self.is_leaf[node]
            place, node, first = place[inner], node[inner], first[inner]
        found = self.values[self.numbers[leaves]]
        # A sum would add the trees of a single row in pairs, and not one after the other.
        total: NDArray[np.float32] = np.add.accumulate(found.reshape(-1, rows), axis=0)[-1]
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
        """Read what `to_bytes` wrote. Raises ZooError: the bytes are damaged, or are not trees."""
        with refusing_damage(_KIND, "stored trees are damaged"):
            arrays, facts = known_arrays(data, _KIND, _ARRAYS)
            nodes, below = int(facts["nodes"]), {"<": True, "<=": False}[facts["condition"]]
            if not 0 <= nodes <= 8 * len(arrays["is_leaf"]):
                raise ValueError("the number of nodes is out of range")
            is_leaf = np.unpackbits(arrays["is_leaf"], count=nodes).astype(bool)
            thresholds, values = (
                np.ascontiguousarray(arrays[name].T).view("<f4").reshape(-1) for name in ("thresholds", "values")
            )
            base = float.fromhex(facts["base"])
            return cls(int(facts["columns"]), below, base, is_leaf, arrays["inputs"], thresholds, values)


def _by_significance(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values.astype("<f4").view(np.uint8).reshape(-1, 4).T)


INPUT, OUTPUT = "operations", "variable"
_COUNTING = Lock()


class StoredTrees:
    """Trees of an entry, read when they are first used: a GPU needs few of an entry's.

    They are evaluated with numpy at first, and with ONNX Runtime once it is worth its start. For each node of the
    trees, starting ONNX Runtime takes about as long as numpy needs to walk one tree with one row. For a command that
    predicts a single network with a large forest, that would be most of the wait.

    Args:
        read: Gives the trees; explanations read them, whatever evaluates them. It raises ZooError if they are damaged.
        columns: Expected number of inputs per operation.
    """

    def __init__(self, read: Callable[[], Trees], columns: int = len(INPUT_NAMES)) -> None:
        self._read, self._columns = read, columns
        self._session: Any = None
        self._walked = 0
        self.check: Callable[[], None] | None = None
        """Compares a golden prediction of these trees; called once, before they predict anything else."""

    @cached_property
    def trees(self) -> Trees:
        """The trees. Raises ZooError: they are damaged, or have another number of inputs."""
        trees = self._read()
        if trees.columns != self._columns:
            raise damaged_entry(
                "stored trees have another number of inputs than there are features", trees.columns, self._columns
            )
        return trees

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """One value per row of inputs.

        Raises ZooError: the trees are damaged, their golden prediction comes out differently, or ONNX Runtime cannot
        load them.
        """
        check, self.check = self.check, None
        if check is not None:
            try:
                check()
            except BaseException:
                self.check = check
                raise
        session = self._session_for(len(inputs))
        if session is None:
            return self.trees.sums(inputs).astype(np.float64)
        (values,) = session.run(None, {INPUT: inputs})
        column: NDArray[np.float64] = (values + np.float32(self.trees.base)).astype(np.float64).reshape(-1)
        return column

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`: the arrays alone, without XGBoost's own format."""
        return {trees_file(name): self.trees.to_bytes()}

    def _session_for(self, rows: int) -> Any:
        """ONNX Runtime's session; None until rows have walked through as many trees as there are nodes."""
        if self._session is None:
            trees = self.trees  # Read outside of the lock, which all predictors share.
            with _COUNTING:
                self._walked += rows * len(trees.starts)
                if self._session is None and self._walked > len(trees.is_leaf):
                    self._session = _session(trees)
        return self._session


def _session(trees: Trees) -> Any:
    hint = "install another version of onnxruntime"
    return onnx.session(trees_to_onnx(trees), "these trees", "onnxruntime 1.20 or newer", hint)


def stored_trees(files: Files, name: str, columns: int = len(INPUT_NAMES)) -> StoredTrees:
    """The trees that a forest or boosted trees wrote with `to_files`. Raises ZooError: they are missing."""
    if trees_file(name) not in files:
        raise damaged_entry("the trees of a regressor are missing in a zoo entry", name, trees_file(name))
    return StoredTrees(partial(_read, files, trees_file(name)), columns)


def _read(files: Files, name: str) -> Trees:
    return Trees.from_bytes(files[name])


def trees_to_onnx(trees: Trees) -> bytes:
    """The trees as a model for ONNX Runtime: `operations` of shape [N, columns] to `variable` of shape [N, 1].

    It is a TreeEnsemble of ai.onnx.ml 5, which loads in less than half the time of older operators and gives the same
    numbers (https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html). The base is left out, because this
    operator has none; it is added to the result.
    """
    is_leaf, starts, number = trees.is_leaf, trees.starts, trees.numbers
    inner = np.flatnonzero(~is_leaf)
    # A tree of one leaf is written as a node with that leaf on both sides, after all others.
    is_alone = is_leaf[starts]
    alone, no = starts[is_alone], np.zeros(int(is_alone.sum()))
    children = [np.append(inner + 1, alone), np.append(trees.otherwise[inner], alone)]
    numbers, leaves = [number[child] for child in children], [is_leaf[child].astype(np.int64) for child in children]
    inputs, thresholds = np.append(trees.inputs, no), np.append(trees.thresholds, no)
    roots = np.where(is_alone, len(inner) + np.cumsum(is_alone) - 1, number[starts])
    attributes: dict[str, int | NDArray[Any]] = {
        "aggregate_function": 1,  # sum
        "n_targets": 1,
        "post_transform": 0,  # none
        "leaf_targetids": np.zeros(len(trees.values), np.int64),
        "leaf_weights": trees.values,
        "nodes_featureids": inputs.astype(np.int64),
        "nodes_splits": thresholds.astype(np.float32),
        "nodes_modes": np.full(len(inputs), 1 if trees.below else 0, np.uint8),
        "nodes_truenodeids": numbers[0],
        "nodes_trueleafs": leaves[0],
        "nodes_falsenodeids": numbers[1],
        "nodes_falseleafs": leaves[1],
        "tree_roots": roots,
    }
    return onnx.model("TreeEnsemble", attributes, (INPUT, trees.columns), (OUTPUT, 1))


class Decisions(NamedTuple):
    """What the trees for a quantity ask about an operation.

    Args:
        path: The questions of the first tree, from its root on, with their answers, and the value that it ends at.
        asked: Inputs, and the share of all questions of all trees about this operation that are about each of them;
            the largest first. They add up to 1.
    """

    path: tuple[str, ...]
    asked: tuple[tuple[str, float], ...]


def decisions(predictor: OperationPredictor, operation: Operation) -> dict[str, Decisions]:
    """Quantity ("time", "power") -> what its trees ask about an operation; empty for predictors without trees."""
    inputs, found = predictor.regressor_inputs(operation), {}
    for quantity in ("time", "power"):
        regressor = getattr(predictor.chip, quantity, None)
        if isinstance(regressor, StoredTrees) and inputs is not None:
            found[quantity] = _decisions(regressor.trees, inputs[0])
    return found


def _decisions(trees: Trees, row: NDArray[np.float32]) -> Decisions:
    asked: Counter[str] = Counter()
    paths = []
    for node in trees.starts.tolist():
        path = []
        while not trees.is_leaf[node]:
            inner = int(trees.numbers[node])
            name, value, threshold = INPUT_NAMES[trees.inputs[inner]], row[trees.inputs[inner]], trees.thresholds[inner]
            holds = bool(value < threshold if trees.below else value <= threshold)
            sign = ("<" if trees.below else "<=") if holds else (">=" if trees.below else ">")
            asked[name] += 1
            path.append(f"{name} {sign} {threshold:.4g}")
            node = node + 1 if holds else int(trees.otherwise[node])
        paths.append((*path, f"value {trees.values[trees.numbers[node]]:.4g}"))
    whole = asked.total() or 1
    return Decisions(paths[0], tuple((name, count / whole) for name, count in asked.most_common()))
