"""Trees of zoo entries, evaluated with numpy or with ONNX Runtime. Loading an entry runs no code from it."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError, damaged_entry
from ..contract import Files
from ..formats import onnx
from ..predictor import INPUT_NAMES
from .trees import Trees, trees_file

INPUT, OUTPUT = "operations", "variable"

_FEW_ROWS = 256
"""Number of rows up to which walking the trees in numpy is quicker than starting ONNX Runtime for them."""


class StoredTrees:
    """Trees of an entry, evaluated with numpy at first, and with ONNX Runtime after many rows.

    Starting ONNX Runtime takes longer than a whole command that predicts a single network with numpy.

    Args:
        trees: The stored trees.
        columns: Expected number of inputs per operation.

    Raises:
        ZooError: The trees have another number of inputs.
    """

    def __init__(self, trees: Trees, columns: int = len(INPUT_NAMES)) -> None:
        if trees.columns != columns:
            raise damaged_entry(
                "stored trees have another number of inputs than there are features", trees.columns, columns
            )
        self._trees: Trees | None = trees
        self._base = np.float32(trees.base)
        self._session: Any = None
        self._walked = 0
        self._lock = Lock()

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """One value per row of inputs.

        Raises:
            ZooError: ONNX Runtime cannot load these trees.
        """
        trees = self._trees_for(len(inputs))
        if trees is not None:
            return trees.sums(inputs).astype(np.float64)
        (values,) = self._session.run(None, {INPUT: inputs})
        column: NDArray[np.float64] = (values + self._base).astype(np.float64).reshape(-1)
        return column

    def to_files(self, name: str) -> dict[str, bytes]:
        """Not supported: to copy stored trees, pull or copy their zoo entry.

        Raises:
            ZooError: Always.
        """
        raise not_trained(self, "a regressor as its fit returns it")

    def _trees_for(self, rows: int) -> Trees | None:
        """The trees while numpy evaluates them; None from when ONNX Runtime does."""
        if self._trees is None:
            return None
        with self._lock:
            self._walked += rows
            if self._trees is not None and self._walked > _FEW_ROWS:
                self._session, self._trees = _session(self._trees), None
            return self._trees


def not_trained(stored: object, allowed: str) -> ZooError:
    """The error for storing what was read from an entry.

    Args:
        stored: What was read.
        allowed: What can be stored in its place.
    """
    return ZooError(
        "only a predictor that was just trained can be stored",
        given=type(stored).__name__,
        allowed=allowed,
        hint="copy the folder of the entry that it was read from",
    )


def _session(trees: Trees) -> Any:
    hint = "install another version of onnxruntime"
    return onnx.session(trees_to_onnx(trees), "these trees", "onnxruntime 1.20 or newer", hint)


def stored_trees(files: Files, name: str, columns: int = len(INPUT_NAMES)) -> StoredTrees:
    """The trees that a forest or boosted trees wrote with `to_files`.

    Args:
        files: Contents of an entry, checked against its manifest.
        name: Name of the regressor, such as "time" or "power".
        columns: Expected number of inputs per operation.

    Raises:
        ZooError: The trees are missing or damaged, or have another number of inputs.
    """
    if trees_file(name) not in files:
        raise damaged_entry("the trees of a regressor are missing in a zoo entry", name, trees_file(name))
    return StoredTrees(Trees.from_bytes(files[trees_file(name)]), columns)


def trees_to_onnx(trees: Trees) -> bytes:
    """The trees as a model for ONNX Runtime: `operations` of shape [N, columns] to `variable` of shape [N, 1].

    It is a TreeEnsemble of ai.onnx.ml 5, which loads in less than half the time of older operators and gives the same
    numbers (https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html). The base is left out, because this
    operator has none; it is added to the result.
    """
    is_leaf, starts = trees.is_leaf, trees.starts
    at = np.flatnonzero(~is_leaf)
    number = trees.numbers
    children = [at + 1, trees.otherwise]
    numbers, leaves = [number[child] for child in children], [is_leaf[child].astype(np.int64) for child in children]
    inputs, thresholds, roots = trees.inputs.astype(np.int64), trees.thresholds, number[starts]
    # A tree of one leaf is written as a node with that leaf on both sides.
    alone = is_leaf[starts]
    if alone.any():
        extra = int(alone.sum())
        numbers = [np.concatenate([each, number[starts[alone]]]) for each in numbers]
        leaves = [np.concatenate([each, np.ones(extra, np.int64)]) for each in leaves]
        inputs = np.concatenate([inputs, np.zeros(extra, np.int64)])
        thresholds = np.concatenate([thresholds, np.zeros(extra, np.float32)])
        roots = roots.copy()
        roots[alone] = len(at) + np.arange(extra)
    node = onnx.node(
        "TreeEnsemble",
        [INPUT],
        [OUTPUT],
        onnx.whole("aggregate_function", 1),  # sum
        onnx.whole("n_targets", 1),
        onnx.whole("post_transform", 0),  # none
        onnx.integers("leaf_targetids", np.zeros(len(trees.values), np.int64)),
        onnx.array("leaf_weights", trees.values),
        onnx.integers("nodes_featureids", inputs),
        onnx.array("nodes_splits", thresholds),
        onnx.array("nodes_modes", np.full(len(inputs), 1 if trees.below else 0, np.uint8)),
        onnx.integers("nodes_truenodeids", numbers[0]),
        onnx.integers("nodes_trueleafs", leaves[0]),
        onnx.integers("nodes_falsenodeids", numbers[1]),
        onnx.integers("nodes_falseleafs", leaves[1]),
        onnx.integers("tree_roots", roots),
        domain="ai.onnx.ml",
    )
    taken = onnx.value(onnx.INPUT, INPUT, np.float32, ["rows", trees.columns])
    given = onnx.value(onnx.OUTPUT, OUTPUT, np.float32, ["rows", 1])
    return onnx.model([node, taken, given], ir_version=10, ml=5, default=21)
