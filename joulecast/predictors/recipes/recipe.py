"""Recipes: which predictor, with which hyperparameters, as TOML files under `predictors/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ...errors import InputError, unknown_name
from .any_gpu import EnsembleRecipe, Member, RooflineRecipe
from .bounds import out_of_range, require_float, require_integer
from .perceptron import PerceptronRecipe
from .transformer import TransformerRecipe
from .xgboost import XGBoostRecipe

FOREST_KINDS = ("extra_trees", "random_forest")


@dataclass(frozen=True)
class ForestRecipe:
    """Settings of a forest.

    Args:
        forest: extra_trees draws its split points at random, random_forest searches them on bootstrap samples.
        trees: Number of trees.
        max_features: Share of the inputs that a split may choose from, above 0, at most 1.
        min_samples_leaf: Least number of operations in a leaf.
        folds: Folds of the cross-validation, at least 2.
        seed: Makes everything that is drawn repeatable.
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
        _require_share("max_features", self.max_features)

    def to_json(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class BlendRecipe:
    """Settings of extremely randomized trees with a Gaussian process (regressors/blend.py).

    Args:
        trees: Number of trees.
        max_features: Share of the inputs that a split may choose from, above 0, at most 1.
        min_samples_leaf: Least number of operations in a leaf.
        time_share: Weight of the process in time, where an operation is close to what was measured; from 0 to 1.
        power_share: The same in power.
        folds: Folds of the cross-validation, at least 2.
        seed: Makes everything that is drawn repeatable.
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

    def to_json(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class BoostingRecipe:
    """Settings of gradient-boosted trees over many GPUs.

    Args:
        trees: Number of trees.
        depth: Of each.
        learning_rate: How much of each is added.
        subsample: Share of the measurements that a tree sees.
        features_per_split: Share of the features that a split may choose from.
        min_child_weight: Least weight of the measurements in a leaf; it is 1 in the mean.
        regularization: L2, on the leaves.
        perceptron: Beside the trees; None: trees alone. In a file, a table.
        folds: Folds of the cross-validation, at least 2.
        seed: Makes everything that is drawn repeatable.
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
            _require_share(name, getattr(self, name))
        for name in ("min_child_weight", "regularization"):
            require_float(name, getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)


def _require_share(name: str, value: object) -> None:
    if not isinstance(value, float) or not 0 < value <= 1:
        raise out_of_range(name, value, "above 0.0, at most 1.0")


OwnRecipe = ForestRecipe | BlendRecipe | XGBoostRecipe
"""Recipes that fit one GPU on its own measurements; each has `folds`, `seed` and `to_json`."""

AnyGpuRecipe = RooflineRecipe | BoostingRecipe | TransformerRecipe | EnsembleRecipe
"""Recipes that fit any GPU on the measurements of many; each has `folds`, `seed` and `to_json`."""

Recipe = OwnRecipe | AnyGpuRecipe

RECIPES: Mapping[str, type[Recipe]] = {
    "forest": ForestRecipe,
    "blend": BlendRecipe,
    "xgboost": XGBoostRecipe,
    "roofline": RooflineRecipe,
    "boosting": BoostingRecipe,
    "transformer": TransformerRecipe,
    "ensemble": EnsembleRecipe,
}
"""Predictor name -> its settings."""


def predictor_of(recipe: Recipe) -> str:
    """The name that a recipe of this class has in a file."""
    return next(name for name, kind in RECIPES.items() if kind is type(recipe))


def _member(value: object, folder: Path) -> Member:
    if not isinstance(value, dict) or value.keys() != {"recipe", "weight"} or not isinstance(value["weight"], float):
        raise InputError(
            "a member of an ensemble is not one", given=value, allowed='{recipe = "other.toml", weight = 0.5}'
        )
    recipe = load_recipe(folder / str(value["recipe"]))
    if isinstance(recipe, EnsembleRecipe) or not isinstance(recipe, AnyGpuRecipe):
        raise InputError("an ensemble is made of single predictors for any GPU", given=predictor_of(recipe))
    return Member(recipe, value["weight"])


def _perceptron(value: object) -> PerceptronRecipe:
    if not isinstance(value, dict):
        raise InputError("a perceptron of a recipe is no table", given=repr(value), allowed="[perceptron]")
    known = [field.name for field in fields(PerceptronRecipe)]
    for key in value:
        if key not in known:
            raise unknown_name("key of a perceptron", key, known)
    return PerceptronRecipe(**value)


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe.

    Raises:
        InputError: The file cannot be read, or a value is out of range.
        UnknownNameError: The predictor or a key does not exist.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError("this recipe cannot be read", given=str(path), hint=str(error)) from error
    name = values.pop("predictor", None)
    if name not in RECIPES:
        raise unknown_name("predictor of a recipe", name, RECIPES)
    known = [field.name for field in fields(RECIPES[name])]
    for key in values:
        if key not in known:
            raise unknown_name(f"key of a {name} recipe", key, known)
    if "perceptron" in values:
        values["perceptron"] = _perceptron(values["perceptron"])
    if "members" in values:
        values["members"] = tuple(_member(value, Path(path).parent) for value in values["members"])
    return RECIPES[name](**values)
