"""Layers of language models, which repeat: a few are traced, and their calls stand for those of all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

Call = tuple[Any, str]
"""What is called, and the path of its module."""

BACKWARD = "(backward)"
"""Path of calls that belong to no module: additions of gradients."""

_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@cache
def _split(path: str) -> tuple[str, int, str] | None:
    """What stands before the first number of a path, the number, and what stands after it; None without a number."""
    number = _LAYER.search(path)
    return (path[: number.start()], int(number[0]), path[number.end() :]) if number else None


def _shifted(calls: Sequence[Call], by: int) -> list[Call]:
    """The same calls, this many layers later."""
    return [(what, f"{at[0]}{at[1] + by}{at[2]}" if (at := _split(path)) else path) for what, path in calls]


class Stack:
    """The layers of a language model, of which a few stand for all: some at the start, one period, some at the end.

    Raises ValueError: the model has no more layers than these.
    """

    def __init__(self, layers: int, settings: Mapping[str, Any], period: int) -> None:
        self.first, self.period = 1 + int(settings.get("first_k_dense_replace", 0)), period
        self.last = 1 + (layers - self.first - 1) % period
        self.times = (layers - self.first - self.last) // period
        if self.times < 2:
            raise ValueError(layers)

    @property
    def short(self) -> int:
        """Number of layers of the model that is traced."""
        return self.first + self.period + self.last

    def deepened(self, short: Sequence[Call], longer: Sequence[Call] = ()) -> list[Call]:
        """The calls of the whole model, from those of the short one, and in training of one with a period more.

        Raises ValueError: the two differ in more than the layers of a period.
        """
        if longer and self._repeated(short, longer, 2) != list(longer):
            raise ValueError("its layers differ")
        return self._repeated(short, longer, self.times)

    def _repeated(self, short: Sequence[Call], longer: Sequence[Call], times: int) -> list[Call]:
        """The short model's calls with its period repeated this often."""
        start, end = self._bounds(short)
        block = short[start:end]
        calls = list(short[:start])
        for turn in range(times):
            calls += _shifted(block, turn * self.period)
        # The additions of gradients do not say which layer they belong to, and come after all of them.
        backward, in_longer = ([call for call in each if call[1] == BACKWARD] for each in (short, longer))
        at = next((i for i, (a, b) in enumerate(zip(backward, in_longer, strict=False)) if a != b), len(backward))
        added = in_longer[at : at + len(in_longer) - len(backward)]
        rest = _shifted(short[end:], (times - 1) * self.period)
        after = next((i for i, call in enumerate(rest) if call[1] == BACKWARD), len(rest))
        return [
            *(*calls, *rest[:after]),
            *(*backward[:at], *(added * (times - 1)), *backward[at:]),
            *(call for call in rest[after:] if call[1] != BACKWARD),
        ]

    def _bounds(self, calls: Sequence[Call]) -> tuple[int, int]:
        """Where the calls of the period start and end."""
        numbers = [at[1] if (at := _split(path)) else None for _, path in calls]
        end = self.first + self.period
        inside = [i for i, number in enumerate(numbers) if number is not None and self.first <= number < end]
        after = [i for i, number in enumerate(numbers) if number == end]
        return inside[0], after[0]
