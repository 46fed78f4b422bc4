"""Settings of the roofline predictor for any GPU, which uses physics without anything learned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .bounds import require_integer


@dataclass(frozen=True)
class RooflineRecipe:
    """Settings of the roofline predictor. It has no parameters; these settings concern its test only.

    Args:
        folds: Folds of the cross-validation, at least 2.
        seed: Makes the split into folds repeatable.
    """

    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("folds", self.folds, 2)
        require_integer("seed", self.seed, 0)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
