"""Recipes: the settings of each kind of predictor, as they are written in TOML files under `predictors/`.

A setting is one field: its default, and the values that it may have. Recipes are checked when they are made.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..errors import InputError, unknown_name
from ..system.regular_files import MOST_BYTES, read_regular, refusing_damage
from ..system.resources import named_file

Value = TypeVar("Value")
Made = TypeVar("Made", bound="Settings")
_LEAST_SHARE = 1e-6  # A share or a learning rate lies above zero.


def setting(default: Value, least: float = 0, most: float = math.inf, *, choices: Sequence[str] = ()) -> Value:
    """A setting of a recipe: a field of a dataclass that is checked when the recipe is made.

    Args:
        default: Its default. The setting is of this type: an integer, a decimal number, a text, or other settings,
            which are a table of their own in a TOML file.
        least: Smallest value of a number.
        most: Largest value of a number.
        choices: What a text may be.
    """
    found: Value = field(default=default, metadata={"range": (least, most), "choices": choices})
    return found


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings with defaults, checked when they are made.

    Raises InputError: a value is of another type, or out of range. Raises UnknownNameError: a text is none of its
    choices.

    Args:
        seed: Seed of the random numbers, so that training is repeatable.
    """

    seed: int = setting(0, 0, 2**31)

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.metadata:
                require_setting(each, getattr(self, each.name))

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)


def require_setting(of: Field[Any], value: object) -> None:
    """Require that a setting of a recipe, or of a table of it, may have a value; see `Settings`."""
    kind: type[Any] = type(of.default)
    name, choices, (least, most) = of.name, of.metadata["choices"], of.metadata["range"]
    if issubclass(kind, Settings):
        if not isinstance(value, kind):
            raise InputError(f"{name} of a recipe is not a table", given=repr(value)[:100], allowed=f"[{name}]")
    elif choices:
        if value not in choices:
            raise unknown_name(f"{name} of a recipe", value, choices)
    elif isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        words = "an integer" if kind is int else "a decimal number"
        allowed = f"{words} from {least:g}" + (f" to {most:g}" if math.isfinite(most) else "")
        raise InputError(f"{name} of a recipe is out of range", given=repr(value), allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """Settings of a predictor: a frozen dataclass whose fields are the keys of its TOML file.

    Args:
        folds: Folds of the cross-validation.
    """

    folds: int = setting(10, 2, 1000)

    @property
    def entry(self) -> str | None:
        """Word for the predictor in the name of its zoo entry; None for that of its recipes' `predictor`."""
        return None


@dataclass(frozen=True)
class RooflineRecipe(Recipe):
    """Settings of the roofline predictor for any GPU, which has no parameters: they concern its test only."""


@dataclass(frozen=True)
class ForestSettings(Settings):
    """Settings of a forest.

    Args:
        forest: "extra_trees" draws split points at random; "random_forest" searches for the best ones on bootstrap
            samples of the measurements.
        trees: Number of trees.
        max_features: Share of the inputs that a split may choose from.
        min_samples_leaf: Least number of operations in a leaf.
    """

    forest: Literal["extra_trees", "random_forest"] = setting("extra_trees", choices=("extra_trees", "random_forest"))
    trees: int = setting(64, 1)
    max_features: float = setting(1.0, _LEAST_SHARE, 1)
    min_samples_leaf: int = setting(1, 1)


@dataclass(frozen=True)
class ForestRecipe(ForestSettings, Recipe):
    """Settings of a forest on the measurements of one GPU."""

    @property
    def entry(self) -> str | None:
        """See `Recipe.entry`. A random forest stands beside extremely randomized trees, which are better."""
        return "random-forest" if self.forest == "random_forest" else None


@dataclass(frozen=True, kw_only=True)
class SharedRecipe(Recipe):
    """Settings of trees over the measurements of many GPUs.

    Args:
        most_rows: Largest number of measurements of a kind in a precision and a mode on one GPU; more are thinned out.
    """

    most_rows: int = setting(3000, 1)


@dataclass(frozen=True)
class SharedForestRecipe(ForestSettings, SharedRecipe):
    """Settings of a forest over the measurements of many GPUs."""

    trees: int = setting(20, 1)
    max_features: float = setting(0.7, _LEAST_SHARE, 1)
    min_samples_leaf: int = setting(6, 1)

    @property
    def entry(self) -> str | None:
        """See `Recipe.entry`."""
        return "forest"


@dataclass(frozen=True)
class TreeSettings(Settings):
    """Settings of gradient-boosted trees.

    Args:
        trees: Number of trees.
        depth: Largest number of levels of a tree.
        leaves: Largest number of leaves of a tree, which splits where that helps most; 0 splits level by level.
        learning_rate: Factor on the values of each tree before they are added.
        subsample: Share of the measurements that a tree sees.
        features_per_split: Share of the features that a split may choose from.
        min_child_weight: Least sum of the weights of the measurements in a leaf; a measurement has weight 1 on average.
        regularization: L2 penalty on the values of leaves.
    """

    trees: int = setting(300, 1, 10_000)
    depth: int = setting(8, 1, 16)
    leaves: int = setting(0, 0, 65_536)
    learning_rate: float = setting(0.1, _LEAST_SHARE, 1)
    subsample: float = setting(0.8, _LEAST_SHARE, 1)
    features_per_split: float = setting(0.5, _LEAST_SHARE, 1)
    min_child_weight: float = setting(20.0)
    regularization: float = setting(2.0)


@dataclass(frozen=True)
class XGBoostRecipe(TreeSettings, Recipe):
    """Settings of boosted trees for one GPU (regressors/fitted_trees.py), and where to search for better ones.

    Args:
        trees: Largest number of trees; early stopping may choose fewer.
        patience: Training stops after this number of trees without a smaller error on held-out operations.
        search: Setting -> values that `joulecast train --tune` tries.
    """

    trees: int = setting(1500, 1, 10_000)
    depth: int = setting(6, 1, 16)
    learning_rate: float = setting(0.05, _LEAST_SHARE, 1)
    min_child_weight: float = setting(1.0)
    regularization: float = setting(1.0)
    patience: int = setting(60, 1, 10_000)
    search: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        searchable = {each.name: each for each in fields(self) if each.name not in ("folds", "seed", "search")}
        for name, values in self.search.items():
            if name not in searchable:
                raise unknown_name("setting to search", name, searchable)
            if not isinstance(values, list | tuple) or not values:
                allowed = f"such as {name} = [{getattr(self, name)}]"
                raise InputError("a search has a list of values", given=f"{name} = {values!r}", allowed=allowed)
            for value in values:
                require_setting(searchable[name], value)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary, without `search`."""
        return {name: value for name, value in super().to_dict().items() if name != "search"}


@dataclass(frozen=True)
class BoostingRecipe(TreeSettings, SharedRecipe):
    """Settings of gradient-boosted trees over the measurements of many GPUs."""

    trees: int = setting(400, 1, 10_000)
    learning_rate: float = setting(0.08, _LEAST_SHARE, 1)
    features_per_split: float = setting(0.7, _LEAST_SHARE, 1)
    min_child_weight: float = setting(3.0)


@dataclass(frozen=True)
class KernelRecipe(Recipe):
    """How the one model of kernels in half precision and below is learned.

    Args:
        generation: Settings of the trees of each measured generation and group. In a file, a table.
        other_generations: Settings of the trees over all GPUs, for all other generations. They are fewer and simpler,
            so that they follow no generation closely. In a file, a table.
        quantile: Quantile of the measurements that is predicted where these scatter widely (fitted_trees.py).
            Disturbances make measurements longer, so the most frequent value lies below the median.
        most_rows: Largest number of measurements of a part on one GPU; more are thinned out at random.
        constants_rows: Most measurements of one GPU, group, way and width to which the constants of physics are fitted.
    """

    generation: TreeSettings = setting(TreeSettings(depth=16, leaves=128, subsample=0.7, min_child_weight=8.0))
    other_generations: TreeSettings = setting(
        TreeSettings(trees=200, depth=6, subsample=0.5, features_per_split=0.3, min_child_weight=30.0)
    )
    quantile: float = setting(0.45, 0.01, 0.99)
    most_rows: int = setting(48_000, 100)
    constants_rows: int = setting(400, 50)
    folds: int = setting(8, 2, 1000)


@dataclass(frozen=True)
class TransformerRecipe(Recipe):
    """Settings of a transformer over operations.

    Args:
        width: Width of a token's vector, a multiple of `heads`.
        heads: Attention heads of a layer.
        network_layers, operation_layers, kind_layers: Layers over all tokens of the sequence, over the tokens of one
            operation, and over one vector per operation.
        feed_forward: Width of the feed-forward part over that of a vector, in the first two stacks.
        kind_feed_forward: Width of the feed-forward part in the third stack, which has a tenth of the vectors.
        epochs: Passes over the operations.
        batch: Operations per step.
        learning_rate: Highest learning rate of AdamW, for embeddings, biases and heads.
        matrix_learning_rate: Highest learning rate of Muon (transformer/fit.py), for the matrices of token
            embeddings and layers.
        most_rows: Largest number of device times to learn from; more are thinned out within each kind and GPU.
        unknown_kinds: Share of the operations whose kind is hidden in training, so that the vector of unmeasured kinds
            is trained, too.
        together: Share of the training steps that read operations as parts of synthetic networks instead of alone.
    """

    width: int = setting(32, 1, 1024)
    heads: int = setting(2, 1, 32)
    network_layers: int = setting(1, 0, 64)
    operation_layers: int = setting(1, 0, 64)
    kind_layers: int = setting(2, 0, 64)
    feed_forward: int = setting(2, 1, 64)
    kind_feed_forward: int = setting(8, 1, 64)
    epochs: int = setting(20, 1)
    batch: int = setting(256, 1)
    learning_rate: float = setting(3e-3, 0, 1)
    matrix_learning_rate: float = setting(0.01, _LEAST_SHARE, 1)
    most_rows: int = setting(150_000, 1)
    unknown_kinds: float = setting(0.02, 0, 0.5)
    together: float = setting(0.15, 0, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            allowed = f"k x {self.heads}"
            raise InputError("width of a recipe is not a multiple of heads", given=self.width, allowed=allowed)


def read_recipe(path: str | Path, make: Callable[[dict[str, Any]], Made]) -> Made:
    """Read a recipe.

    Raises InputError: the file cannot be read, or a value is out of range. Raises UnknownNameError: a key does not
    exist.
    """
    path = named_file(path, "predictors", "recipe")
    with refusing_damage("this recipe cannot be read", path):
        return make(tomllib.loads(read_regular(path, MOST_BYTES, "this recipe").decode()))


def load_kernel_recipe(path: str | Path) -> KernelRecipe:
    """Read a recipe of kernels: a TOML file, or "kernels", the recipe that came with joulecast; see `read_recipe`."""
    return read_recipe(path, lambda values: recipe_of(KernelRecipe, values, "recipe of kernels"))


def recipe_of(settings: type[Made], values: Mapping[str, Any], what: str) -> Made:
    """Make a recipe, or a table of one, from the values of a file."""
    kinds: dict[str, type[Any]] = {each.name: type(each.default) for each in fields(settings)}
    made = {}
    for name, value in values.items():
        if name not in kinds:
            raise unknown_name(f"key of a {what}", name, kinds)
        is_table = issubclass(kinds[name], Settings) and isinstance(value, dict)
        made[name] = recipe_of(kinds[name], value, name) if is_table else value
    return settings(**made)
