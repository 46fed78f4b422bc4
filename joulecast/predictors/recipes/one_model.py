"""Settings of the one model of an operation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .bounds import require_float, require_integer, require_share


@dataclass(frozen=True)
class OneModelRecipe:
    """Settings of the one model, which is learned over the measurements of all GPUs.

    Args:
        trees, depth: Number of the trees over all GPUs, and their largest number of levels.
        generation_trees, generation_depth: The same of the trees of each generation.
        learning_rate: Factor on the values of each tree before they are added, above 0, at most 1.
        subsample: Share of the measurements that a tree sees.
        features_per_split: Share of the features that a split may choose from.
        min_child_weight: Least number of measurements in a leaf.
        regularization: L2 penalty on the values of leaves.
        quantile: Quantile of the measurements that is predicted. Disturbances make measurements longer, so the most
            frequent value lies below the median.
        most_rows: Most measurements of one GPU, kind, precision and program; more are thinned out at random.
        constants_rows: Most measurements of one GPU and group of kernels to which the constants of physics are fitted.
        folds: Folds of the cross-validation, at least 2.
        seed: Makes everything that is drawn repeatable.
    """

    trees: int = 150
    depth: int = 6
    generation_trees: int = 250
    generation_depth: int = 8
    learning_rate: float = 0.1
    subsample: float = 0.7
    features_per_split: float = 0.5
    min_child_weight: float = 20.0
    regularization: float = 2.0
    quantile: float = 0.45
    most_rows: int = 4000
    constants_rows: int = 250
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        wholes = ("trees", "depth", "generation_trees", "generation_depth", "most_rows", "constants_rows")
        for name, least in (*((name, 1) for name in wholes), ("folds", 2), ("seed", 0)):
            require_integer(name, getattr(self, name), least)
        for name in ("learning_rate", "subsample", "features_per_split"):
            require_share(name, getattr(self, name))
        for name in ("min_child_weight", "regularization"):
            require_float(name, getattr(self, name))
        require_float("quantile", self.quantile, 0.01, 0.99)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
