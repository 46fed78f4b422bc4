"""Regressors through ONNX Runtime: small, quick to import, and loading one runs no code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingDependencyError, ZooError
from .any_gpu import BoostedRegressor
from .forest import ForestRegressor
from .predictor import INPUT_NAMES

_INPUT = "operations"
_OPSET = 17
_XGBOOST_OPSET = 15  # the newest that onnxmltools writes


class OnnxRegressor:
    """A regressor that is stored as ONNX.

    Args:
        model: The serialized model.
        columns: How many numbers it must want per operation.

    Raises:
        ZooError: The bytes are no such model.
    """

    def __init__(self, model: bytes, columns: int = len(INPUT_NAMES)) -> None:
        # Here, because collecting measurements imports joulecast on machines that do without it.
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # One thread: a network has tens of operations, and threads that wait for each other cost more than they gain.
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            (taken,) = self._session.get_inputs()
        except Exception as error:  # onnxruntime raises a class of its own per cause, without a common base
            raise ZooError("a stored regressor is no ONNX model", hint=str(error).splitlines()[0]) from error
        if taken.name != _INPUT or taken.shape[1] != columns:
            raise ZooError(
                "a stored regressor wants other inputs than these",
                given=f"{taken.name} {taken.shape}",
                allowed=f"{_INPUT} [*, {columns}]",
            )

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """One value per row of inputs."""
        (values,) = self._session.run(None, {_INPUT: inputs})
        column: NDArray[np.float64] = np.asarray(values, dtype=np.float64).reshape(-1)
        return column


def to_onnx(regressor: ForestRegressor) -> bytes:
    """Serialize a fitted forest.

    Raises:
        MissingDependencyError: skl2onnx is not installed.
    """
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise MissingDependencyError(
            "storing a forest needs skl2onnx", hint="pip install 'joulecast[train]'"
        ) from error
    model: Any = convert_sklearn(
        regressor.model,
        initial_types=[(_INPUT, FloatTensorType([None, len(INPUT_NAMES)]))],
        target_opset=_OPSET,
        name="forest",
    )
    # Without the date and host that exporters like to leave, the same forest gives the same bytes.
    model.doc_string = ""
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def boosted_to_onnx(regressor: BoostedRegressor) -> bytes:
    """Serialize boosted trees.

    Raises:
        MissingDependencyError: onnxmltools is not installed.
    """
    try:
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    except ImportError as error:
        raise MissingDependencyError(
            "storing boosted trees needs onnxmltools", hint="pip install 'joulecast[train]'"
        ) from error
    columns = regressor.model.n_features_in_
    model: Any = convert_xgboost(
        regressor.model, "boosting", [(_INPUT, FloatTensorType([None, columns]))], target_opset=_XGBOOST_OPSET
    )
    model.doc_string = ""
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized
