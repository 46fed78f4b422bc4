"""Metrics of prediction errors: R2, and median, mean and 90th percentile of relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...arrays import FloatArray


def r2(measured: FloatArray, predicted: FloatArray) -> float:
    """Coefficient of determination. If all measured values are the same, it is 1 where they are predicted and else 0.

    scikit-learn's `r2_score` has the same rule (`force_finite`).
    """
    missed, spread = np.sum((measured - predicted) ** 2), np.sum((measured - np.mean(measured)) ** 2)
    return float(1 - missed / spread) if spread else float(not missed)


def absolute_errors(errors: Sequence[float] | FloatArray) -> dict[str, float]:
    """Median, mean (the MAPE) and 90th percentile of the absolute values of relative errors."""
    error = np.abs(np.asarray(errors, dtype=float))
    return {"median": float(np.median(error)), "mean": float(np.mean(error)), "p90": float(np.quantile(error, 0.9))}


def scores(name: str, measured: FloatArray, predicted: FloatArray) -> dict[str, float]:
    """R2, R2 of the logarithm and absolute relative errors, each called `name_...`; pairs with NaN do not count."""
    known = ~np.isnan(measured) & ~np.isnan(predicted)
    measured, predicted = measured[known], predicted[known]
    return {
        f"{name}_r2": r2(measured, predicted),
        f"{name}_r2_log": r2(np.log(measured), np.log(predicted)),
        **{f"{name}_{statistic}": v for statistic, v in absolute_errors(predicted / measured - 1).items()},
    }


def errors_by(labels: Sequence[str], measured: FloatArray, predicted: FloatArray) -> Mapping[str, dict[str, float]]:
    """Absolute relative errors of each group, in the order in which the labels first occur; "count" says how many."""
    known = ~np.isnan(measured) & ~np.isnan(predicted)
    named = np.array(labels)
    found = {}
    for label in dict.fromkeys(labels):
        mine = known & (named == label)
        if mine.any():
            error = predicted[mine] / measured[mine] - 1
            found[label] = {"count": float(mine.sum()), **absolute_errors(error)}
    return found
