"""Calls of layers that follow each other: most models repeat a few, which are traced and stored only once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

Call = tuple[Any, str]
"""An operation, or its number in a template, and the path of its module."""

BACKWARD = "(backward)"
"""Path of calls that belong to no module: additions of gradients."""

_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_LONGEST_PERIOD = 8  # layers until the pattern of different layers repeats; Gemma 3 has 6


@cache
def _split(path: str) -> tuple[str, int, str] | None:
    """What stands before the first number of a path, the number, and what stands after it; None without a number."""
    found = _LAYER.search(path)
    return (path[: found.start()], int(found[0]), path[found.end() :]) if found else None


def shifted(calls: Sequence[Call], by: int) -> list[Call]:
    """The same calls, this many layers later."""
    return [(what, f"{at[0]}{at[1] + by}{at[2]}" if (at := _split(path)) else path) for what, path in calls]


def layers_of(calls: Sequence[Call]) -> list[list[Call]]:
    """Consecutive calls of one layer; calls outside of layers are lists of their own."""
    return [list(group) for _, group in itertools.groupby(calls, lambda call: (_split(call[1]) or ("", None))[:2])]


def folded(calls: Sequence[Call]) -> list[list[Any]]:
    """Calls as lists for a file: [operation, path], or [times, layers, calls] for those that repeat.

    Repeated calls start over that many layers later each time.
    """
    groups, found, i = layers_of(calls), [], 0
    while i < len(groups):
        times, period = max((_repeats(groups, i, period), -period) for period in range(1, _LONGEST_PERIOD + 1))
        period = -period
        block = [call for group in groups[i : i + period] for call in group]
        if times > 1:
            found.append([times, period, [list(call) for call in block]])
            i += times * period
        else:
            found += [list(call) for call in groups[i]]
            i += 1
    return found


def _repeats(groups: Sequence[list[Call]], start: int, period: int) -> int:
    """How often the layers from one on follow each other, with rising numbers; 1 where they do not."""
    times = 1
    if any(_split(group[0][1]) is None for group in groups[start : start + period]):
        return times
    while (later := groups[(at := start + times * period) : at + period]) and len(later) == period:
        if any(group != shifted(first, times * period) for first, group in zip(groups[start:], later, strict=False)):
            break
        times += 1
    return times


def unfolded(items: Sequence[Sequence[Any]]) -> Iterator[Call]:
    """The calls that `folded` wrote."""
    for item in items:
        if len(item) == 2:
            yield item[0], item[1]
        else:
            times, period, block = item
            for turn in range(times):
                yield from shifted([(what, path) for what, path in block], turn * period)


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
            calls += shifted(block, turn * self.period)
        # The additions of gradients do not say which layer they belong to, and come after all of them.
        backward, in_longer = ([call for call in each if call[1] == BACKWARD] for each in (short, longer))
        at = next((i for i, (a, b) in enumerate(zip(backward, in_longer, strict=False)) if a != b), len(backward))
        added = in_longer[at : at + len(in_longer) - len(backward)]
        rest = shifted(short[end:], (times - 1) * self.period)
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
