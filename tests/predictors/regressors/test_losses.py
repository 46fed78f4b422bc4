"""The loss of kernels' trees: the mean of measurements that agree, and a quantile of those that scatter widely."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import needs
from joulecast.predictors.recipes import TreeSettings
from joulecast.predictors.regressors.fitted_trees import rounded_quantile_loss, unfitted_trees

pytestmark = needs("xgboost")

QUANTILE = 0.3
AGREEING = np.array([0.0] * 9 + [0.02])  # mean 0.002; their quantile is 0.0
SCATTERED = np.arange(0.0, 2.0, 0.002)  # 30 % lie below 0.6; their mean is 1.0


@pytest.mark.parametrize(
    ("measured", "expected", "tolerance"),
    [(AGREEING, 0.002, 1e-4), (SCATTERED, 0.6, 0.03)],
    ids=["measurements that agree", "measurements that scatter"],
)
def test_where_measurements_of_one_size_lie_decides_what_is_predicted(measured, expected, tolerance):
    settings = TreeSettings(trees=400, depth=1, subsample=1.0, min_child_weight=1.0, regularization=0.0)
    trees = unfitted_trees(settings, settings.trees, objective=rounded_quantile_loss(QUANTILE), base_score=0.0)
    inputs = np.zeros((len(measured), 1), np.float32)
    assert trees.fit(inputs, measured).predict(inputs[:1])[0] == pytest.approx(expected, abs=tolerance)


def test_a_measurement_of_twice_the_weight_counts_twice():
    settings = TreeSettings(trees=200, depth=1, subsample=1.0, min_child_weight=0.1, regularization=0.0)
    inputs, loss = np.zeros((2, 1), np.float32), rounded_quantile_loss(0.5)
    trees = unfitted_trees(settings, settings.trees, objective=loss, base_score=0.0)
    trees.fit(inputs, np.array([0.0, 0.03]), sample_weight=np.array([1.0, 2.0]))
    assert trees.predict(inputs[:1])[0] == pytest.approx(0.02, abs=1e-4)


@pytest.mark.parametrize(("leaves", "count", "deepest"), [(0, 3, 2), (5, 5, 4)], ids=["by level", "where it helps"])
def test_trees_grow_level_by_level_or_where_it_helps_most(leaves, count, deepest):
    """Each target is ten times the one before, so that the best split of a leaf cuts off its largest target."""
    settings = TreeSettings(depth=deepest, leaves=leaves, subsample=1.0, features_per_split=1.0)
    settings = replace(settings, min_child_weight=0.0, regularization=0.0)
    inputs = np.arange(5, dtype=np.float32)[:, None]
    fitted = unfitted_trees(settings, 1).fit(inputs, 10.0 ** np.arange(5))
    assert (fitted.get_booster().trees_to_dataframe().Feature == "Leaf").sum() == count
