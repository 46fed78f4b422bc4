"""Trees as they are fitted: forests by scikit-learn, boosted trees by XGBoost, and how their numbers are stored.

The table of recipes that fit one GPU on its own measurements is at the end: settings, fit and storage, one row each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import needing, with_extra
from ...operations.operation import Operation
from ..contract import INPUT_NAMES, Files, Regressor
from ..recipes import ForestRecipe, ForestSettings, Recipe, TreeSettings, XGBoostRecipe
from .trees import Trees, stored_trees, trees_file

MORE_WORK: tuple[str, ...] = (
    *("log_rows", "log_waves", "log_cache_fill", "log_cycles", "log_baseline", "log_baseline_over_host"),
)
"""Inputs that grow with the amount of work. The baseline's time grows with physics. Its correction must not fall
with any of these inputs, so that their product, the time, never falls when one of them grows and the others stay."""

_ROUNDED = 0.1  # Log errors over which the slope of the loss passes from that of one side to that of the other.
_CURVATURE = 0.3  # Of the loss where it is straight; with none at all, the steps of boosting would have no end.

_STOPPING_FOLDS = 10  # Folds for early stopping; one of them is held out.
_LEAST_HELD = 5


@dataclass(frozen=True)
class FittedTrees:
    """A fitted forest of scikit-learn, or trees of XGBoost, behind the interface of a regressor."""

    model: Any

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """One value per row of inputs."""
        return np.asarray(self.model.predict(inputs), dtype=np.float64)

    def trees(self) -> Trees:
        """The trees as arrays, which predict the same to the last bit."""
        return _boosting(self.model) if hasattr(self.model, "get_booster") else _forest(self.model)

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`: arrays; of boosted trees also XGBoost's format, to explain and to train further."""
        found = {trees_file(name): self.trees().to_bytes()}
        if hasattr(self.model, "get_booster"):
            found[f"{name}.ubj"] = bytes(self.model.get_booster().save_raw("ubj"))
        return found


Nodes = tuple[Sequence[int], Sequence[int], NDArray[Any], NDArray[np.float32], NDArray[np.float32]]
"""The nodes of a tree: where to go if a condition holds, negative for leaves; where otherwise; and the input, threshold
and value of each."""


def _sum_of(trees: Iterable[Nodes], columns: int, below: bool, base: float) -> Trees:
    """Trees as arrays, with the nodes of each in preorder."""
    sorted_nodes = []
    for left, right, *values in trees:
        order, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            order.append(node)
            if left[node] >= 0:
                waiting += (right[node], left[node])
        leaf = np.array([left[node] < 0 for node in order])
        sorted_nodes.append(
            (leaf, *(column[order][mine] for column, mine in zip(values, (~leaf, ~leaf, leaf), strict=True)))
        )
    is_leaf, inputs, thresholds, leaves = map(np.concatenate, zip(*sorted_nodes, strict=True))
    return Trees(columns, below, base, is_leaf, inputs.astype(np.uint16), thresholds, leaves)


def _forest(model: Any) -> Trees:
    trees = [each.tree_ for each in model.estimators_]
    nodes = []
    for tree in trees:
        # Inputs are in single precision, so a condition stays the same if its threshold is rounded down to that.
        thresholds = tree.threshold.astype(np.float32)
        above = thresholds > tree.threshold
        thresholds[above] = np.nextafter(thresholds[above], np.float32(-np.inf))
        values = (tree.value[:, 0, 0] / len(trees)).astype(np.float32)
        nodes.append((tree.children_left.tolist(), tree.children_right.tolist(), tree.feature, thresholds, values))
    return _sum_of(nodes, model.n_features_in_, below=False, base=0.0)


def _boosting(model: Any) -> Trees:
    stored = json.loads(bytes(model.get_booster().save_raw("json")))["learner"]
    base = np.float32(stored["learner_model_param"]["base_score"].strip("[]"))  # newer versions write a list
    nodes = []
    for tree in stored["gradient_booster"]["model"]["trees"]:
        # The value of a leaf stands where other nodes have their threshold.
        numbers = np.array(tree["split_conditions"], np.float32)
        inputs = np.array(tree["split_indices"])
        nodes.append((tree["left_children"], tree["right_children"], inputs, numbers, numbers))
    return _sum_of(nodes, model.n_features_in_, below=True, base=float(base))


def unfitted_forest(settings: ForestSettings) -> Any:
    """A forest of scikit-learn that gives the same trees every time.

    Raises MissingDependencyError: scikit-learn is not installed.
    """
    with needing("training needs scikit-learn", with_extra("train")):
        from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
    return (ExtraTreesRegressor if settings.forest == "extra_trees" else RandomForestRegressor)(
        n_estimators=settings.trees,
        max_features=settings.max_features,
        min_samples_leaf=settings.min_samples_leaf,
        random_state=settings.seed,
        n_jobs=1,  # With more threads, sums differ in the last bits between runs.
    )


def fit_boosted(
    operations: Sequence[Operation],
    inputs: NDArray[np.float32],
    targets: FloatArray,
    recipe: XGBoostRecipe,
    quantity: str,
) -> FittedTrees:
    """See `OneGpuForm.fit`: boosted trees of one GPU, monotone in the work.

    The number of trees is found by early stopping on a tenth of the operations, with all variants of an operation on
    one side of the split. That many trees are then fitted to all operations. "time" is monotone in the work; "power" is
    not: a larger operation may wait for memory. Raises MissingDependencyError: xgboost is not installed.
    """
    # Imported here, because predicting needs no measurements.
    from ..measured import fold_of

    fold = fold_of(set(operations), _STOPPING_FOLDS, recipe.seed)
    held = np.array([fold[operation] == 0 for operation in operations])
    trees = recipe.trees
    monotone = tuple(int(quantity == "time" and name in MORE_WORK) for name in INPUT_NAMES)
    if _LEAST_HELD <= held.sum() < len(operations):
        stopped = unfitted_trees(recipe, trees, monotone_constraints=monotone, early_stopping_rounds=recipe.patience)
        stopped.fit(inputs[~held], targets[~held], eval_set=[(inputs[held], targets[held])], verbose=False)
        trees = int(stopped.best_iteration) + 1
    model = unfitted_trees(recipe, trees, monotone_constraints=monotone)
    return FittedTrees(model.fit(inputs, targets))


def unfitted_trees(recipe: TreeSettings, trees: int, **more: Any) -> Any:
    """An XGBRegressor that gives the same trees every time.

    Raises MissingDependencyError: xgboost is not installed.
    """
    with needing("training needs xgboost", with_extra("train")):
        from xgboost import XGBRegressor
    return XGBRegressor(
        n_estimators=trees,
        max_depth=recipe.depth,
        max_leaves=recipe.leaves,
        grow_policy="lossguide" if recipe.leaves else "depthwise",
        learning_rate=recipe.learning_rate,
        subsample=recipe.subsample,
        colsample_bynode=recipe.features_per_split,
        min_child_weight=recipe.min_child_weight,
        reg_lambda=recipe.regularization,
        tree_method="hist",
        random_state=recipe.seed,
        n_jobs=1,  # With more threads, sums differ in the last bits between runs.
        **more,
    )


def rounded_quantile_loss(quantile: float) -> Callable[..., tuple[FloatArray, FloatArray]]:
    """The loss of a quantile, rounded off to a parabola near zero, as an objective of XGBoost.

    Where measurements lie closer to each other than 0.1 in logarithms, trees approach their mean, otherwise their
    quantile. The plain loss of a quantile has no curvature that could tell a step of boosting how far to go.

    Args:
        quantile: Share of widely scattered measurements that lie below the prediction.
    """

    def derivatives(
        measured: FloatArray, predicted: FloatArray, sample_weight: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Gradient and curvature of the loss of each measurement, shape (measurements,)."""
        errors = (predicted - measured) / _ROUNDED
        weights = 1.0 if sample_weight is None else sample_weight
        inside = (errors > -quantile) & (errors < 1 - quantile)
        gradient = weights * _ROUNDED * np.clip(errors, -quantile, 1 - quantile)
        return gradient, weights * np.where(inside, 1.0, _CURVATURE)

    return derivatives


Form = TypeVar("Form", bound=Any)


class OneGpuForm(NamedTuple):
    """How a recipe becomes a regressor of a GPU's time or power, and how that is read again.

    Args:
        fit: Fits a regressor. Its arguments are the measured operations; their inputs, shape (operations,
            len(INPUT_NAMES)); the targets, shape (operations,): the logarithm of loop time over the baseline's, or loop
            power over the board's cap; the recipe; and the quantity, "time" or "power".
        from_files: Reads what the regressor's `to_files` wrote, given the files of an entry and the quantity. It
            raises ZooError, KeyError, TypeError or ValueError for anything else, and runs no code from the files.
    """

    settings: type[Any]
    fit: Callable[..., Regressor]
    from_files: Callable[[Files, str], Regressor]


ONE_GPU_FORMS: Mapping[str, OneGpuForm] = {
    # A forest is fitted alike to time and power.
    "forest": OneGpuForm(
        ForestRecipe,
        lambda operations, inputs, targets, recipe, quantity: FittedTrees(unfitted_forest(recipe).fit(inputs, targets)),
        stored_trees,
    ),
    "xgboost": OneGpuForm(XGBoostRecipe, fit_boosted, stored_trees),
}
"""Name of a predictor in a recipe and in the zoo -> its form."""


def form_of(recipe: Recipe, forms: Mapping[str, Form]) -> Form:
    """The form, in a table of forms, of recipes of this class."""
    return next(form for form in forms.values() if form.settings is type(recipe))
