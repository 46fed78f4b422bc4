"""How costs that were worked out by hand are written."""

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


def product(shapes: list[tuple[int, ...]], attributes: dict[str, Any], flops: int, x: int, w: int, y: int) -> Case:
    """A product of x and w, by their elements. Backward, dx is made of dy and w, and dw of dy and x."""
    training = Cost(3 * flops, 4 * 2 * (x + w + y), 4 * (y + x + w))
    return Case(shapes, attributes, Cost(flops, 4 * (x + w), 4 * y), training)


def layer(attributes: dict[str, Any], flops: int, x: int, w: int, y: int, gates: int) -> Case:
    """A recurrent layer over 5 steps of 2 x 3: gates are written and read; their gradients are read three times."""
    training = Cost(3 * flops, 4 * (2 * (x + w + y) + 4 * gates), 4 * (y + x + w + 2 * gates))
    return Case([(5, 2, 3)], attributes, Cost(flops, 4 * (x + w + gates), 4 * (y + gates)), training)


def unary(flops: int) -> Case:
    """Forward: x in, y out. Backward: y or x and dy in, dx out, and about as much arithmetic again."""
    return Case([X], {}, Cost(24 * flops, 96, 96), Cost(48 * flops, 96 + 2 * 96, 2 * 96))


def pooled(flops: int, output: int, training_read: int, training_written: int) -> Case:
    """A reduction of 2 x 3 x 4 over its last dimension, or of an image: forward x in, y out."""
    return Case([X], {"dim": -1}, Cost(24 * flops, 96, output), Cost(48 * flops, training_read, training_written))


def optimizer(flops: int, read: int, written: int) -> Case:
    return Case([X], {}, Cost(24 * flops, 96 * read, 96 * written), Cost(24 * flops, 96 * read, 96 * written))
