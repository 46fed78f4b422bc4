"""What the trees of a predictor ask about an operation: the path through one of them, and their most asked inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...operations.operation import Operation
from ..contract import INPUT_NAMES
from ..predictor import OperationPredictor
from .trees import StoredTrees, Trees


class Decisions(NamedTuple):
    """What the trees for a quantity ask about an operation.

    Args:
        path: The questions of the first tree, from its root on, with their answers, and the value that it ends at.
        asked: Inputs, and the share of all questions of all trees about this operation that are about each of them;
            the largest first. They add up to 1.
    """

    path: tuple[str, ...]
    asked: tuple[tuple[str, float], ...]


def decisions(predictor: OperationPredictor, operation: Operation) -> dict[str, Decisions]:
    """Quantity ("time", "power") -> what its trees ask about an operation; empty for predictors without trees."""
    inputs, found = predictor.regressor_inputs(operation), {}
    for quantity in ("time", "power"):
        regressor = getattr(predictor.chip, quantity, None)
        if isinstance(regressor, StoredTrees) and inputs is not None:
            found[quantity] = _decisions(regressor.trees, inputs[0])
    return found


def _decisions(trees: Trees, row: NDArray[np.float32]) -> Decisions:
    asked: Counter[str] = Counter()
    path: list[str] = []
    for tree, start in enumerate(trees.starts.tolist()):
        *questions, value = _walk(trees, row, start)
        asked.update(question.rpartition(" ")[0].rpartition(" ")[0] for question in questions)
        if tree == 0:
            path = [*questions, f"value {value}"]
    whole = sum(asked.values()) or 1
    return Decisions(tuple(path), tuple((name, count / whole) for name, count in asked.most_common()))


def _walk(trees: Trees, row: NDArray[np.float32], node: int) -> Iterator[str]:
    """The questions of a tree about a row with their answers, and last its value."""
    while not trees.is_leaf[node]:
        inner = int(trees.numbers[node])
        place, threshold = int(trees.inputs[inner]), trees.thresholds[inner]
        holds = bool(row[place] < threshold if trees.below else row[place] <= threshold)
        sign = ("<" if trees.below else "<=") if holds else (">=" if trees.below else ">")
        yield f"{INPUT_NAMES[place]} {sign} {threshold:.4g}"
        node = node + 1 if holds else int(trees.otherwise[inner])
    yield f"{trees.values[trees.numbers[node]]:.4g}"
