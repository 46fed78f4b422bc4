"""Settings of boosted trees on the measurements of one GPU, and where to search for better ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import InputError, unknown_name
from .bounds import Range, require_within

_RANGES: Mapping[str, Range] = {
    "trees": (1, 10_000),
    "depth": (1, 16),
    "patience": (1, 10_000),
    "folds": (2, 1000),
    "seed": (0, 2**31),
    "learning_rate": (1e-4, 1.0),
    "subsample": (0.05, 1.0),
    "features_per_split": (0.01, 1.0),
    "min_child_weight": (0.0, 1e6),
    "regularization": (0.0, 1e6),
}


@dataclass(frozen=True)
class XGBoostRecipe:
    """Settings of gradient-boosted trees for one GPU (regressors/boosted.py).

    Args:
        trees: Largest number of trees; early stopping may choose fewer.
        depth: Largest number of levels of a tree.
        learning_rate: Factor on the values of each tree before they are added.
        subsample: Share of the measurements that a tree sees.
        features_per_split: Share of the features that a split may choose from.
        min_child_weight: Least number of measurements in a leaf.
        regularization: L2 penalty on the values of leaves.
        patience: Training stops after this number of trees without a smaller error on held-out operations.
        folds: Folds of the cross-validation, at least 2.
        seed: Seed of the random numbers, so that training is repeatable.
        search: Setting -> values that `joulecast train --tune` tries.
    """

    trees: int = 1500
    depth: int = 6
    learning_rate: float = 0.05
    subsample: float = 0.8
    features_per_split: float = 0.5
    min_child_weight: float = 1.0
    regularization: float = 1.0
    patience: int = 60
    folds: int = 10
    seed: int = 0
    search: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _RANGES:
            self._refuse_outside(name, getattr(self, name))
        for name, values in self.search.items():
            if name not in _RANGES or name in ("folds", "seed"):
                raise unknown_name("setting to search", name, [n for n in _RANGES if n not in ("folds", "seed")])
            if not isinstance(values, list | tuple) or not values:
                raise InputError(
                    "a search has a list of values",
                    given=f"{name} = {values!r}",
                    allowed=f"such as {name} = [{getattr(self, name)}]",
                )
            for value in values:
                self._refuse_outside(name, value)

    def _refuse_outside(self, name: str, value: object) -> None:
        require_within(name, value, type({f.name: f.default for f in fields(self)}[name]), _RANGES[name])

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary, without `search`."""
        return {name: value for name, value in asdict(self).items() if name != "search"}
