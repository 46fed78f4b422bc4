"""Boosted trees that learn a law beside the measurements: more work never takes less time.

Trees are piecewise constant, and where physics is flat, because a launch decides, their jumps decide. So they see pairs
of operations of random sizes besides, of which the second does more than the first. Nothing was measured of
them: a pair adds to the loss only where the second is predicted to be quicker, and by the square of how much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import InputError
from ...operations.operation import Operation
from ..recipes import TreeSettings
from .fitted_trees import FittedTrees, unfitted_trees

_WEIGHT = 2.0  # Of all pairs, if all broke the law, relative to that of all measurements.
_MARGIN = 0.03  # Pairs that grow by less (in logs) count as broken, so that others of such sizes do not break the law.
_SIZES = ("out_features", "out_channels", "normalized_shape", "groups")  # Attributes that are sizes of tensors.
_SMALLEST, _LARGEST = 2.0**-10, 2.0**3  # Of the factors on sizes.
_TRIES = 3  # Draws for each pair; sizes that fit no operation are drawn again.


class Pairs(NamedTuple):
    """Pairs of operations on GPUs, the second with more work than the first.

    Args:
        less: Inputs of the first, shape (pairs, inputs).
        more: Inputs of the second, shape (pairs, inputs).
        growth: Log ratio of the times by physics of the two, to which what is learned adds, shape (pairs,).
    """

    less: NDArray[np.float32]
    more: NDArray[np.float32]
    growth: FloatArray


def doubled_sizes(
    operations: Sequence[Operation], pairs: int, rng: np.random.Generator
) -> tuple[list[Operation], list[Operation]]:
    """Operations of random sizes, as many of each kind that was measured, and the same with twice the batch."""
    kind = attrgetter("kind")
    measured = [[*group] for _, group in groupby(sorted(operations, key=kind), kind)]
    once, twice = [], []
    for _ in range(_TRIES * pairs):
        some = measured[rng.integers(len(measured))]
        try:
            one = _resized(some[rng.integers(len(some))], rng)
            two = _of_sizes(one, [(2 * first, *others) for first, *others in one.input_shapes], {})
        except InputError:
            continue
        once.append(one)
        twice.append(two)
        if len(once) == pairs:
            break
    return once, twice


def _resized(operation: Operation, rng: np.random.Generator) -> Operation:
    """An operation of another size. What is of equal size in it stays so, such as the reduction of both factors."""
    factors: dict[int, float] = {}

    def resized(size: int) -> int:
        if size not in factors:
            factors[size] = 2 ** rng.uniform(np.log2(_SMALLEST), np.log2(_LARGEST)) if rng.random() < 0.5 else 1.0
        return max(int(size * factors[size]), 1)

    shapes = [tuple(map(resized, shape)) for shape in operation.input_shapes]
    attributes = {
        name: tuple(map(resized, value)) if isinstance(value, tuple) else resized(value) if value > 1 else value
        for name, value in operation.attributes.items()
        if name in _SIZES
    }
    return _of_sizes(operation, shapes, attributes)


def _of_sizes(operation: Operation, shapes: Iterable[Sequence[int]], attributes: Mapping[str, Any]) -> Operation:
    known = {**operation.attributes, **attributes}
    return Operation(operation.kind, shapes, known, precision=operation.precision, mode=operation.mode)


def fit_growing(
    settings: TreeSettings,
    inputs: NDArray[np.float32],
    targets: FloatArray,
    weights: FloatArray,
    pairs: Pairs,
) -> FittedTrees:
    """Boosted trees with the least loss on measurements, and on pairs that break the law.

    Args:
        settings: Of the trees.
        inputs: Of the measurements, shape (measurements, inputs).
        targets: Log ratio of measured time to physics, shape (measurements,).
        weights: Weight of each measurement, shape (measurements,).
        pairs: Pairs of operations.

    Raises MissingDependencyError: xgboost is not installed.
    """
    loss = _loss(targets, weights, pairs.growth)
    trees = unfitted_trees(settings, settings.trees, objective=loss, base_score=0.0)
    rows = np.vstack([inputs, pairs.less, pairs.more])
    return FittedTrees(trees.fit(rows, np.zeros(len(rows))))


def _loss(targets: FloatArray, weights: FloatArray, growth: FloatArray) -> Callable[[Any, FloatArray], Any]:
    """Gradient and curvature of the loss by the predictions of measurements, and of both operations of all pairs."""
    measured, pairs = len(targets), len(growth)
    each = _WEIGHT * weights.sum() / max(pairs, 1)

    def derivatives(_: Any, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
        less, more = np.split(predicted[measured:], [pairs])
        lacking = np.maximum(_MARGIN - (growth + more - less), 0.0)
        slope, curve = each * lacking, each * (lacking > 0)
        gradient = np.concatenate([weights * (predicted[:measured] - targets), slope, -slope])
        return gradient, np.concatenate([weights, curve, curve])

    return derivatives
