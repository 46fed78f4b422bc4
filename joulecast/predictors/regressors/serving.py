"""Regressors of zoo entries: trees through ONNX Runtime, which is small and quick to import. Loading runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError
from ..contract import Regressor
from ..predictor import INPUT_NAMES
from .blend import FALLOFF, BlendRegressor
from .forest import ForestRegressor
from .gaussian import GaussianProcess
from .trees import Trees
from .trees_fitted import trees_of
from .trees_onnx import INPUT, trees_from_onnx, trees_to_onnx
from .xgboost_model import BoostedRegressor

_FEW_ROWS = 256
"""Rows up to which walking the trees takes less than getting ONNX Runtime ready for them."""


class StoredTrees:
    """Trees of an entry, evaluated by ONNX Runtime once there is much to evaluate.

    Loading an entry, or a command that predicts one network, would take longer to get that ready than to do without.

    Args:
        trees: As they were stored.
        columns: How many numbers they must want per operation.

    Raises:
        ZooError: They want another number.
    """

    def __init__(self, trees: Trees, columns: int = len(INPUT_NAMES)) -> None:
        if trees.columns != columns:
            raise ZooError("a stored regressor wants other inputs than these", given=trees.columns, allowed=columns)
        self._trees: Trees | None = trees
        self._base = np.float32(trees.base)
        self._session: Any = None
        self._walked = 0
        self._lock = Lock()

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """One value per row of inputs.

        Raises:
            ZooError: ONNX Runtime does not take these trees.
        """
        trees = self._trees_for(len(inputs))
        if trees is not None:
            return trees.sums(inputs).astype(np.float64)
        (values,) = self._session.run(None, {INPUT: inputs})
        column: NDArray[np.float64] = (values + self._base).astype(np.float64).reshape(-1)
        return column

    def _trees_for(self, rows: int) -> Trees | None:
        """The trees while they are walked; None once ONNX Runtime has them."""
        if self._trees is None:
            return None
        with self._lock:
            self._walked += rows
            if self._trees is not None and self._walked > _FEW_ROWS:
                self._session, self._trees = _session(self._trees), None
            return self._trees


def _session(trees: Trees) -> Any:
    # Here, because collecting measurements imports joulecast on machines that do without it.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One thread: a network has tens of operations, and threads that wait for each other cost more than they gain.
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(trees_to_onnx(trees), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a class of its own per cause, without a common base
        raise ZooError(
            "ONNX Runtime does not take these trees",
            given=f"onnxruntime {onnxruntime.__version__}",
            allowed="1.20 or newer",
            hint=str(error).splitlines()[0],
        ) from error


def regressor_file(name: str) -> str:
    """Name of the file that holds a regressor of an entry: "time.safetensors"."""
    return f"{name}.safetensors"


def stored_regressor(files: Mapping[str, bytes], name: str, columns: int = len(INPUT_NAMES)) -> StoredTrees:
    """The regressor of an entry: trees as arrays, or in entries of format 1 as ONNX.

    Args:
        files: Contents of the entry, checked against its manifest.
        name: "time" or "power".
        columns: How many numbers it must want per operation.

    Raises:
        ZooError: There is none, it is damaged, or it wants other inputs.
    """
    if regressor_file(name) in files:
        return StoredTrees(Trees.from_bytes(files[regressor_file(name)]), columns)
    if f"{name}.onnx" in files:
        return StoredTrees(trees_from_onnx(files[f"{name}.onnx"]), columns)
    raise ZooError("a zoo entry lacks a regressor", given=name, hint="pull the entry again, or train it again")


_PROCESS = "process"
_STEEPEST = 1000


def regressor_files(name: str, regressor: Regressor) -> dict[str, bytes]:
    """Files of a regressor that was just fitted: its trees, and where it is a blend its process.

    Raises:
        MissingDependencyError: The converter is not installed.
        ZooError: It was not fitted, but read from an entry.
    """
    if isinstance(regressor, BlendRegressor):
        process = {regressor_file(f"{name}-{_PROCESS}"): regressor.process.to_bytes()}
        return {**regressor_files(name, regressor.trees), **process}
    if isinstance(regressor, BoostedRegressor):
        # The native form, to train on from, and to explain.
        native = bytes(regressor.model.get_booster().save_raw("ubj"))
        return {regressor_file(name): trees_of(regressor).to_bytes(), f"{name}.ubj": native}
    if not isinstance(regressor, ForestRegressor):
        raise ZooError("only a predictor that was just trained can be stored", given=type(regressor).__name__)
    return {regressor_file(name): trees_of(regressor).to_bytes()}


def trees_file(name: str, regressor: Regressor) -> dict[str, bytes]:
    """The file of boosted trees that were just fitted, without their native form.

    Raises:
        MissingDependencyError: The converter is not installed.
        ZooError: They were not fitted, but read from an entry.
    """
    if not isinstance(regressor, BoostedRegressor):
        raise ZooError("only a predictor that was just trained can be stored", given=type(regressor).__name__)
    return {regressor_file(name): trees_of(regressor).to_bytes()}


def own_regressor(files: Mapping[str, bytes], name: str, share: object, falloff: object = FALLOFF) -> Regressor:
    """What `regressor_files` wrote for one GPU.

    Args:
        files: Contents of the entry, checked against its manifest.
        name: "time" or "power".
        share: Of its process; 0 where there is none.
        falloff: Of its process.

    Raises:
        ZooError: Something is missing or damaged, or wants other inputs.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ZooError("a stored regressor has an impossible share", given=repr(share), allowed="0 to 1")
    trees = stored_regressor(files, name)
    if not share:
        return trees
    file = regressor_file(f"{name}-{_PROCESS}")
    if file not in files:
        raise ZooError("a zoo entry lacks a regressor", given=file, hint="pull the entry again, or train it again")
    if isinstance(falloff, bool) or not isinstance(falloff, int | float) or not 0 < falloff <= _STEEPEST:
        raise ZooError("a stored regressor has an impossible falloff", given=repr(falloff), allowed=f"to {_STEEPEST}")
    process = GaussianProcess.from_bytes(files[file])
    if process.columns != len(INPUT_NAMES):
        raise ZooError(
            "a stored regressor wants other inputs than these", given=process.columns, allowed=len(INPUT_NAMES)
        )
    return BlendRegressor(trees, process, float(share), float(falloff))
