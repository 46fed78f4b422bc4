"""Settings of predictors for any GPU that are made of others, or of nothing: physics alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InputError


@dataclass(frozen=True)
class RooflineRecipe:
    """Physics alone; there is nothing to set but how it is tested.

    Args:
        folds: Folds of the cross-validation, at least 2.
        seed: Of the split.
    """

    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("folds", 2), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} of a recipe is out of range", given=repr(value), allowed=f"an integer from {least}"
                )

    def to_json(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
