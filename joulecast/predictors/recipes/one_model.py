"""Settings of the one model of an operation."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ...errors import InputError, unknown_name
from ...system.damage import unreadable
from ...system.regular_files import MOST_BYTES, read_regular
from ...system.resources import named_file
from .bounds import require_float, require_integer


@dataclass(frozen=True)
class ModelTrees:
    """Settings of boosted trees.

    Args:
        trees: Number of trees.
        depth: Largest number of levels of a tree.
        learning_rate: Factor on the values of each tree before they are added, above 0, at most 1.
        subsample: Share of the measurements that a tree sees, above 0, at most 1.
        features_per_split: Share of the features that a split may choose from, above 0, at most 1.
        min_child_weight: Least number of measurements in a leaf.
        regularization: L2 penalty on the values of leaves.
        seed: Makes everything that is drawn repeatable.
    """

    trees: int = 300
    depth: int = 8
    learning_rate: float = 0.1
    subsample: float = 0.7
    features_per_split: float = 0.5
    min_child_weight: float = 20.0
    regularization: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("trees", 1), ("depth", 1), ("seed", 0)):
            require_integer(name, getattr(self, name), least)
        for name in ("learning_rate", "subsample", "features_per_split"):
            require_float(name, getattr(self, name), 1e-6, 1.0)
        for name in ("min_child_weight", "regularization"):
            require_float(name, getattr(self, name))


@dataclass(frozen=True)
class OneModelRecipe:
    """How the one model is learned.

    Args:
        generation: Settings of the trees of each measured generation and group. In a file, a table.
        shared: Settings of the trees over all GPUs. They are simpler, so that they follow no generation closely. In a
            file, a table.
        quantile: Quantile of the measurements that is predicted. Disturbances make measurements longer, so the most
            frequent value lies below the median.
        most_rows: Largest number of measurements of a part on one GPU; more are thinned out at random.
        constants_rows: Most measurements of one GPU, group, way and width to which the constants of physics are fitted.
        folds: Folds of the cross-validation over sizes of operations, at least 2.
        seed: Makes everything that is drawn repeatable.
    """

    generation: ModelTrees = ModelTrees()
    shared: ModelTrees = ModelTrees(trees=200, depth=6, subsample=0.5, features_per_split=0.3, min_child_weight=30.0)
    quantile: float = 0.42
    most_rows: int = 8_000
    constants_rows: int = 120
    folds: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("most_rows", 100), ("constants_rows", 50), ("folds", 2), ("seed", 0)):
            require_integer(name, getattr(self, name), least)
        require_float("quantile", self.quantile, 0.01, 0.99)
        for name in ("generation", "shared"):
            if not isinstance(getattr(self, name), ModelTrees):
                raise InputError(
                    f"{name} is not a table of settings of trees",
                    given=repr(getattr(self, name))[:100],
                    allowed=f"[{name}], followed by its settings",
                )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)


def load_model_recipe(path: str | Path) -> OneModelRecipe:
    """Read a recipe.

    Args:
        path: A TOML file, or "kernels", the recipe that came with joulecast.

    Raises:
        InputError: The file cannot be read, or a value is out of range.
        UnknownNameError: A key does not exist.
    """
    path = named_file(path, "predictors", "recipe")
    try:
        values = tomllib.loads(read_regular(path, MOST_BYTES, "this recipe").decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise unreadable("this recipe cannot be read", path, error) from error
    for table in ("generation", "shared"):
        if isinstance(values.get(table), dict):
            _require_known(values[table], ModelTrees, table)
            values[table] = ModelTrees(**values[table])
    _require_known(values, OneModelRecipe, "recipe of the one model")
    return OneModelRecipe(**values)


def _require_known(values: dict[str, Any], settings: type, what: str) -> None:
    known = [field.name for field in fields(settings)]
    for key in values:
        if key not in known:
            raise unknown_name(f"key of a {what}", key, known)
