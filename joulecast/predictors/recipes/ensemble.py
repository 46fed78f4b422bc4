"""Settings of an average of several predictors for any GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...errors import InputError
from .bounds import require_integer
from .settings import Recipe


@dataclass(frozen=True)
class Member:
    """A member of an ensemble.

    Args:
        recipe: Settings of the member; in a file, the path of another recipe beside it.
        weight: Weight in the average, above 0, at most 1; the weights of all members add up to 1.
    """

    recipe: Recipe
    weight: float


@dataclass(frozen=True)
class EnsembleRecipe:
    """Several predictors, averaged in log space.

    Args:
        members: The recipes that are averaged, at least two.
        folds: Folds of the cross-validation, at least 2.
        seed: Makes the split into folds repeatable.
    """

    members: tuple[Member, ...]
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("folds", self.folds, 2)
        require_integer("seed", self.seed, 0)
        weights = [member.weight for member in self.members]
        if len(weights) < 2 or min(weights) <= 0 or abs(sum(weights) - 1) > 1e-6:
            raise InputError(
                "the members of an ensemble do not add up",
                given=", ".join(map(repr, weights)) or "no members",
                allowed="two or more, with weights above 0.0 that sum up to 1.0",
            )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
