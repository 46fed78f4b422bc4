"""Regressors of zoo entries: trees that ONNX Runtime evaluates. Loading an entry runs no code from it."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError, damaged_entry
from ...system.damage import first_line
from ..contract import Files
from ..formats.runtime import import_onnxruntime
from ..predictor import INPUT_NAMES
from .trees import Trees, trees_file
from .trees_onnx import INPUT, trees_to_onnx

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
                "stored trees have another number of inputs than there are features",
                trees.columns,
                columns,
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
        raise ZooError(
            "only a predictor that was just trained can be stored",
            given=type(self).__name__,
            allowed="a regressor as its fit returns it",
            hint="copy the folder of the entry that it was read from",
        )

    def _trees_for(self, rows: int) -> Trees | None:
        """The trees while numpy evaluates them; None from when ONNX Runtime does."""
        if self._trees is None:
            return None
        with self._lock:
            self._walked += rows
            if self._trees is not None and self._walked > _FEW_ROWS:
                self._session, self._trees = _session(self._trees), None
            return self._trees


def _session(trees: Trees) -> Any:
    # Imported here, because measurements are collected on machines without ONNX Runtime.
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    # A network has tens of operations, for which starting more threads takes longer than they save.
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(trees_to_onnx(trees), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # The exception classes of onnxruntime have no common base.
        raise ZooError(
            "ONNX Runtime cannot compute these trees",
            given=f"onnxruntime {onnxruntime.__version__}: {first_line(error)}",
            allowed="onnxruntime 1.20 or newer",
            hint="install another version of onnxruntime",
        ) from error


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
        raise damaged_entry(
            "the trees of a regressor are missing in a zoo entry",
            name,
            trees_file(name),
        )
    return StoredTrees(Trees.from_bytes(files[trees_file(name)]), columns)
