"""Settings of gradient-boosted trees for any GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .bounds import require_float, require_integer, require_share
from .perceptron import PerceptronRecipe


@dataclass(frozen=True)
class BoostingRecipe:
    """Settings of gradient-boosted trees over many GPUs.

    Args:
        trees: Number of trees.
        depth: Largest number of levels of a tree.
        learning_rate: Factor on the values of each tree before they are added, above 0, at most 1.
        subsample: Share of the measurements that a tree sees.
        features_per_split: Share of the features that a split may choose from.
        min_child_weight: Least sum of the weights of the measurements in a leaf; a measurement has weight 1 on average.
        regularization: L2 penalty on the values of leaves.
        perceptron: Settings of a perceptron whose prediction is averaged with that of the trees; None for trees alone.
            In a file, a table.
        folds: Folds of the cross-validation, at least 2.
        seed: Seed of the random numbers, so that training is repeatable.
    """

    trees: int = 400
    depth: int = 8
    learning_rate: float = 0.08
    subsample: float = 0.8
    features_per_split: float = 0.7
    min_child_weight: float = 3.0
    regularization: float = 2.0
    perceptron: PerceptronRecipe | None = None
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("trees", 1), ("depth", 1), ("folds", 2), ("seed", 0)):
            require_integer(name, getattr(self, name), least)
        for name in ("learning_rate", "subsample", "features_per_split"):
            require_share(name, getattr(self, name))
        for name in ("min_child_weight", "regularization"):
            require_float(name, getattr(self, name))

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
