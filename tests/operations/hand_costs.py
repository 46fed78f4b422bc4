"""How costs that were worked out by hand are written."""

from __future__ import annotations

from typing import Any, NamedTuple


class Cost(NamedTuple):
    flops: int
    read: int
    written: int


class Case(NamedTuple):
    shapes: list[tuple[int, ...]]
    attributes: dict[str, Any]
    inference: Cost
    training: Cost


X = (2, 3, 4)  # 24 elements, 96 bytes
IMAGE = (2, 6, 5, 7)  # 420 elements, 1,680 bytes


def unary(flops: int) -> Case:
    """Forward: x in, y out. Backward: y or x and dy in, dx out, and about as much arithmetic again."""
    return Case([X], {}, Cost(24 * flops, 96, 96), Cost(48 * flops, 96 + 2 * 96, 2 * 96))


def pooled(flops: int, output: int, training_read: int, training_written: int) -> Case:
    """A reduction of 2 x 3 x 4 over its last dimension, or of an image: forward x in, y out."""
    return Case([X], {"dim": -1}, Cost(24 * flops, 96, output), Cost(48 * flops, training_read, training_written))


def optimizer(flops: int, read: int, written: int) -> Case:
    return Case([X], {}, Cost(24 * flops, 96 * read, 96 * written), Cost(24 * flops, 96 * read, 96 * written))
