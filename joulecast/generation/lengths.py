"""Lengths of prompts and outputs: one number, a mean with its standard deviation, or the lengths of many requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..errors import InputError
from ..operations.inputs import require_positive_integer

Tokens = int | Sequence[float]
"""Tokens of a prompt or output: an int, a pair (mean, standard deviation), or an array of lengths."""


@dataclass(frozen=True)
class Lengths:
    """How many tokens requests have."""

    mean: float
    deviation: float  # Standard deviation of the number of tokens
    longest: float  # The largest number of tokens, or the mean if only mean and deviation are known

    @classmethod
    def of(cls, name: str, value: Any) -> Lengths:
        """Lengths as users give them.

        `value`: A positive integer; a list or tuple of two numbers, which are mean and standard deviation; or an
        array, or a longer list, of the lengths of requests.
        """
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
            require_positive_integer(name, int(value) if isinstance(value, np.integer) else value)
            return cls(int(value), 0.0, int(value))
        items = list(value.ravel()) if isinstance(value, np.ndarray) else list(value)
        if not items or not all(isinstance(each, Real) and math.isfinite(each) for each in items):
            raise _refused(name, value)
        if len(items) == 2 and not isinstance(value, np.ndarray):
            mean, deviation = float(items[0]), float(items[1])
            if mean < 1 or deviation < 0:
                raise _refused(name, value)
            return cls(mean, deviation, mean)
        if min(items) < 1:
            raise _refused(name, value)
        return cls(float(np.mean(items)), float(np.std(items)), float(max(items)))

    @property
    def lengthened(self) -> float:
        """Mean length as a token of all requests sees it: E[L^2] / E[L], as longer ones have more tokens."""
        return self.mean + self.deviation**2 / self.mean


def _refused(name: str, value: object) -> InputError:
    return InputError(
        f"{name} has no such lengths",
        given=repr(value)[:100],
        allowed="a positive integer; a mean of at least 1 and a standard deviation of at least 0; or an array of "
        "lengths of at least 1",
        hint=f"give {name}=512, {name}=(650, 610), or an array with the length of each request",
    )
