"""The interface of all recipes."""

from __future__ import annotations

from typing import Any, Protocol


class Recipe(Protocol):
    """Settings of a predictor: a frozen dataclass whose fields are the keys of its TOML file."""

    @property
    def folds(self) -> int:
        """Folds of the cross-validation, at least 2."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the random numbers, so that training is repeatable."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        ...
