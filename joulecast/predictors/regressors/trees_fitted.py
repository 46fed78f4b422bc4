"""Trees of scikit-learn and XGBoost, converted to arrays through ONNX.

The ONNX converters round 64-bit thresholds correctly to 32 bits, and know XGBoost's base value.
"""

from __future__ import annotations

from typing import Any

from ...errors import MissingDependencyError, with_extra
from .trees import Trees
from .trees_onnx import INPUT, trees_from_onnx

_OPSET = 17
_XGBOOST_OPSET = 15  # The newest one that onnxmltools writes.


def trees_of_forest(model: Any) -> Trees:
    """The trees of a forest that scikit-learn fitted.

    Raises:
        MissingDependencyError: skl2onnx is not installed.
    """
    return trees_from_onnx(forest_to_onnx(model))


def trees_of_boosting(model: Any) -> Trees:
    """The trees of an XGBRegressor.

    Raises:
        MissingDependencyError: onnxmltools is not installed.
    """
    return trees_from_onnx(boosted_to_onnx(model))


def forest_to_onnx(forest: Any) -> bytes:
    """A forest of scikit-learn as ONNX.

    Raises:
        MissingDependencyError: skl2onnx is not installed.
    """
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise MissingDependencyError("storing a forest needs skl2onnx", hint=with_extra("train")) from error
    columns = forest.n_features_in_
    model: Any = convert_sklearn(
        forest, initial_types=[(INPUT, FloatTensorType([None, columns]))], target_opset=_OPSET, name="forest"
    )
    return _serialized(model)


def boosted_to_onnx(boosting: Any) -> bytes:
    """Trees of XGBoost as ONNX.

    Raises:
        MissingDependencyError: onnxmltools is not installed.
    """
    try:
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    except ImportError as error:
        raise MissingDependencyError("storing boosted trees needs onnxmltools", hint=with_extra("train")) from error
    columns = boosting.n_features_in_
    model: Any = convert_xgboost(
        boosting, "boosting", [(INPUT, FloatTensorType([None, columns]))], target_opset=_XGBOOST_OPSET
    )
    return _serialized(model)


def _serialized(model: Any) -> bytes:
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized
