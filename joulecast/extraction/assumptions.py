"""What is assumed of values that only the input of a model has: tokens of each expert, boxes of a detector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from ..errors import InputError, unknown_name

Assume = Mapping[str, str | int]
"""What users state: {"experts": "uniform"}, {"boxes": 100}, or both."""

_NAMES = ("boxes", "experts")

EXPERTS = "every expert gets equally many tokens"
"""The assumption about mixtures of experts, in words."""


@dataclass(frozen=True)
class Assumptions:
    """What stands in for unknown values.

    Args:
        experts: Whether every expert of a mixture gets equally many tokens.
        boxes: How many candidates each selection by values keeps, such as the boxes of a detector; None for no
            assumption.
    """

    experts: bool = False
    boxes: int | None = None

    @classmethod
    def of(cls, stated: Assume | None) -> Self:
        """Read what a user states.

        Raises:
            UnknownNameError: Something else than experts and boxes.
            InputError: Experts are not "uniform", or boxes no positive number.
        """
        stated = stated or {}
        for name in stated:
            if name not in _NAMES:
                raise unknown_name("assumption", name, _NAMES)
        experts, boxes = stated.get("experts"), stated.get("boxes")
        if experts not in (None, "uniform"):
            raise InputError("tokens can be assumed to spread evenly", given=f"experts={experts!r}", allowed="uniform")
        if boxes is not None and (isinstance(boxes, bool) or not isinstance(boxes, int) or boxes < 1):
            raise InputError("a number of boxes is a positive integer", given=f"boxes={boxes!r}")
        return cls(experts is not None, boxes)

    def __iter__(self) -> Iterator[str]:
        """Each of them in words."""
        if self.experts:
            yield EXPERTS
        if self.boxes is not None:
            yield f"every selection by values keeps {self.boxes} candidates, or all where there are fewer"


NOTHING_ASSUMED = Assumptions()
