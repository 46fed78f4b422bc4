"""Settings of trees with a Gaussian process on the measurements of one GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .bounds import require_float
from .forest import ForestRecipe


@dataclass(frozen=True)
class BlendRecipe:
    """Settings of extremely randomized trees with a Gaussian process (regressors/blend.py).

    Args:
        trees: Number of trees.
        max_features: Share of the inputs that a split may choose from, above 0, at most 1.
        min_samples_leaf: Least number of operations in a leaf.
        time_share: Weight of the Gaussian process in the prediction of time, for operations close to measured ones;
            from 0 to 1.
        power_share: Weight of the Gaussian process in the prediction of power, for the same operations; from 0 to 1.
        folds: Folds of the cross-validation, at least 2.
        seed: Seed of the random numbers, so that training is repeatable.
    """

    trees: int = 64
    max_features: float = 1.0
    min_samples_leaf: int = 2
    time_share: float = 0.8
    power_share: float = 0.4
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        self.forest()
        for name in ("time_share", "power_share"):
            require_float(name, getattr(self, name), 0.0, 1.0)

    def forest(self) -> ForestRecipe:
        """The settings of its trees.

        Raises:
            InputError: A value is out of range.
        """
        return ForestRecipe("extra_trees", self.trees, self.max_features, self.min_samples_leaf, self.folds, self.seed)

    def process_share(self, quantity: str) -> float:
        """Weight of the process in "time" or "power"."""
        return self.time_share if quantity == "time" else self.power_share

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
