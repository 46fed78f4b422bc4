"""Settings of a forest on the measurements of one GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...errors import unknown_name
from .bounds import require_integer, require_share

FOREST_KINDS = ("extra_trees", "random_forest")


@dataclass(frozen=True)
class ForestRecipe:
    """Settings of a forest.

    Args:
        forest: "extra_trees" draws split points at random; "random_forest" searches for the best ones on bootstrap
            samples of the measurements.
        trees: Number of trees.
        max_features: Share of the inputs that a split may choose from, above 0, at most 1.
        min_samples_leaf: Least number of operations in a leaf.
        folds: Folds of the cross-validation, at least 2.
        seed: Seed of the random numbers, so that training is repeatable.
    """

    forest: Literal["extra_trees", "random_forest"] = "extra_trees"
    trees: int = 64
    max_features: float = 1.0
    min_samples_leaf: int = 1
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.forest not in FOREST_KINDS:
            raise unknown_name("forest", self.forest, FOREST_KINDS)
        for name, least in (("trees", 1), ("min_samples_leaf", 1), ("folds", 2), ("seed", 0)):
            require_integer(name, getattr(self, name), least)
        require_share("max_features", self.max_features)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
