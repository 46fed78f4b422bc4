"""Whether one predictor is better than another, by more than what chance explains.

Both were tested on the same networks (or operations), left out of their training. The difference of their errors is
taken network by network, and the networks are drawn again with replacement ten thousand times (paired bootstrap; Efron
and Tibshirani, An Introduction to the Bootstrap, 1993). All shapes, precisions and clocks of one network stay together:
they err alike. The challenger is better if less than 5 % of these draws say otherwise.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from .left_out import Errors

_DRAWS = 10_000
_LEVEL = 0.05
_LEAST_GROUPS = 8
_SEED = 0


@dataclass(frozen=True)
class Verdict:
    """What comparing a challenger with a champion comes to.

    Args:
        better: Whether the challenger may take the champion's place.
        why: In words.
        champion_error, challenger_error: Mean absolute log errors on what both were tested on; NaN where nothing was.
        gain: Their difference, above 0 where the challenger is better.
        least_gain: 5 % of the draws lie below.
        compared: On how many.
    """

    better: bool
    why: str
    champion_error: float = float("nan")
    challenger_error: float = float("nan")
    gain: float = float("nan")
    least_gain: float = float("nan")
    compared: int = 0


def compare(champion: Errors, challenger: Errors) -> Verdict:
    """Compare the errors of two predictors on what both had left out.

    Args:
        champion: What was left out -> quantity -> relative error.
        challenger: The same.
    """
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for label in sorted(champion.keys() & challenger.keys()):
        quantities = champion[label].keys() & challenger[label].keys()
        if quantities:
            pairs[_group(label)].append((_error(champion[label], quantities), _error(challenger[label], quantities)))
    count = sum(map(len, pairs.values()))
    if len(pairs) < _LEAST_GROUPS:
        return Verdict(
            False,
            f"both were tested on {len(pairs)} of the same networks or operations; {_LEAST_GROUPS} are needed to tell "
            "them apart. Train both on the same data",
            compared=count,
        )
    sums = np.array([np.sum(group, axis=0) for group in pairs.values()])
    sizes = np.array([len(group) for group in pairs.values()], dtype=float)
    drawn = np.random.default_rng(_SEED).integers(len(sizes), size=(_DRAWS, len(sizes)))
    gains = (sums[:, 0] - sums[:, 1])[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    before, after = (sums.sum(axis=0) / count).tolist()
    least = float(np.quantile(gains, _LEVEL))
    tested = f"on {count} left out of training, in {len(pairs)} groups"
    errors = f"mean absolute log error {before:.4f} before, {after:.4f} after, {tested}"
    if after >= before:
        return Verdict(False, f"the challenger is not better: {errors}", before, after, before - after, least, count)
    if least <= 0:
        why = f"the challenger is better by less than chance explains: {errors}; the gain may be as low as {least:.4f}"
        return Verdict(False, why, before, after, before - after, least, count)
    why = f"the challenger is better: {errors}; the gain is at least {least:.4f} in 95 % of the draws"
    return Verdict(True, why, before, after, before - after, least, count)


def _group(label: str) -> str:
    """What errs alike: "resnet50 32x3x224x224 fp32" and its other shapes and precisions."""
    return re.split(r" \d+(?:x\d+)* ", label, maxsplit=1)[0]


def _error(errors: Mapping[str, float], quantities: Set[str]) -> float:
    return float(np.mean([abs(np.log1p(errors[name])) for name in quantities]))
