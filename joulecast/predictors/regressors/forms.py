"""Recipes that fit one GPU on its own measurements: settings, fit and storage, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from ..contract import Files, Regressor
from ..recipes import ForestRecipe, Recipe, XGBoostRecipe
from .fitted_trees import fit_boosted, fit_forest
from .trees import stored_trees


class _HasSettings(Protocol):
    @property
    def settings(self) -> type[Any]: ...


Form = TypeVar("Form", bound=_HasSettings)


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
    "forest": OneGpuForm(ForestRecipe, fit_forest, stored_trees),
    "xgboost": OneGpuForm(XGBoostRecipe, fit_boosted, stored_trees),
}
"""Name of a predictor in a recipe and in the zoo -> its form."""


def form_of(recipe: Recipe, forms: Mapping[str, Form]) -> Form:
    """The form, in a table of forms, of recipes of this class."""
    return next(form for form in forms.values() if form.settings is type(recipe))
