"""What users may assume about values of the input, and the optimizers that they may name. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from ..errors import InputError, unknown_name
from ..operations.kinds import KINDS

Assume = Mapping[str, str | int]
"""Assumptions as users give them: {"experts": "uniform"}, {"boxes": 100}, {"box_side": 200}, {"attention": "cudnn"}, or
several of them."""

ATTENTION = "attention"
"""The assumption about the library that computes attention, which does not depend on the model."""

_NAMES = ("boxes", "box_side", "experts", ATTENTION)

EXPERTS = "every expert gets equally many tokens"
"""The assumption about mixtures of experts, in words."""


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about unknown values; None stands for no assumption.

    Args:
        experts: Whether every expert of a mixture gets equally many tokens.
        boxes: Number of candidates that each selection by values keeps, such as the boxes of a detector.
        box_side: Length of each side of a box in pixels, for models whose operations depend on it.
    """

    experts: bool = False
    boxes: int | None = None
    box_side: int | None = None

    @classmethod
    def of(cls, stated: Assume | None) -> Self:
        """Read the assumptions of a user.

        Raises UnknownNameError: a name is not experts, boxes, box_side or attention. Raises InputError: the value of
        experts is not "uniform", or another value is not a positive integer.
        """
        stated = stated or {}
        for name in stated:
            if name not in _NAMES:
                raise unknown_name("assumption", name, _NAMES)
        experts = stated.get("experts")
        if experts not in (None, "uniform"):
            raise InputError("tokens can be assumed to spread evenly", given=f"experts={experts!r}", allowed="uniform")
        boxes = _positive(stated, "boxes", "a number of boxes")
        return cls(experts is not None, boxes, _positive(stated, "box_side", "the side of a box in pixels"))

    def __iter__(self) -> Iterator[str]:
        """Each assumption in words."""
        if self.experts:
            yield EXPERTS
        if self.boxes is not None:
            yield f"every selection by values keeps {self.boxes} candidates, or all where there are fewer"
        if self.box_side is not None:
            yield f"every box is a square of {self.box_side} x {self.box_side} pixels"


def _positive(stated: Assume, name: str, what: str) -> int | None:
    value = stated.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(f"{what} is a positive integer", given=f"{name}={value!r}", allowed="1 or more")


NOTHING_ASSUMED = Assumptions()


OPTIMIZERS: tuple[str, ...] = tuple(kind.removesuffix("_step") for kind, row in KINDS.items() if row.is_optimizer_step)
"""Optimizers of torch.optim: with "_fused" those with fused=True; the others as PyTorch runs them by default on a GPU
(foreach)."""


def refuse_optimizer(optimizer: str | None, mode: str) -> None:
    """Refuse an optimizer that does not exist, or that is given in inference."""
    if optimizer is None:
        return
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS, hint="None leaves its step out")
    if mode != "training":
        raise InputError("an optimizer steps in training", given=f"mode={mode}", allowed="training")
