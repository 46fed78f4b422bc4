"""Learning curves: how the error fell while a model was fitted. They are used for tracking only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..regressors.fitted_trees import FittedTrees

Curves = Mapping[str, Sequence[float]]
"""Name -> one value per step: errors by number of trees, losses by epoch."""

_POINTS = 100


def curves_of(fitted: object) -> dict[str, Sequence[float]]:
    """The curves of a model that was just fitted, and of its parts.

    Forests have no curves, because their trees are grown independently of each other.

    Args:
        fitted: A predictor, a residual model or a regressor.
    """
    parts: Mapping[str, object] = getattr(fitted, "parts", {})
    own: Curves = getattr(fitted, "curves", {})
    inner = {f"{part}/{name}": c for part, each in parts.items() for name, c in curves_of(each).items()}
    return {**own, **inner}


def error_by_trees(regressor: FittedTrees, inputs: NDArray[np.float32], targets: FloatArray) -> list[float]:
    """Mean absolute error on held-out rows after every hundredth of the trees.

    Args:
        regressor: The fitted regressor.
        inputs: Features of the held-out rows, shape (rows, features).
        targets: True values of these rows, shape (rows,).
    """
    import xgboost

    booster: Any = regressor.model.get_booster()
    matrix, trees = xgboost.DMatrix(inputs), booster.num_boosted_rounds()
    ends = np.unique(np.linspace(0, trees, _POINTS + 1).round().astype(int))[1:].tolist()
    found, margin = [], None
    # Each step adds to the sum of the trees before it, so that every tree is evaluated once.
    for start, end in zip([0, *ends], ends, strict=False):
        if margin is not None:
            matrix.set_base_margin(margin)
        margin = booster.predict(matrix, output_margin=True, iteration_range=(start, end))
        found.append(float(np.abs(margin - targets).mean()))
    return found
