"""Nodes of ONNX graphs, as conversions to kinds of operations see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...operations.rules import Shape

Converted = tuple[str, list[Shape], dict[str, Any]] | None
"""Kind, input shapes and attributes; None where nothing is done."""


@dataclass(frozen=True)
class Call:
    """A node of a graph.

    Args:
        inputs: Shapes; () for an input that is left out.
        outputs: Shapes.
        attributes: By name, as Python values.
        weights: Which inputs are parameters of the model.
        numbers: Values of small constant inputs, by position.
    """

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    weights: tuple[bool, ...]
    numbers: Mapping[int, tuple[float, ...]]

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return len(self.inputs) > position and self.inputs[position] != ()
