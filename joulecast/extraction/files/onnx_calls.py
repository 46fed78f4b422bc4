"""Nodes of ONNX graphs, in the form in which they are converted to operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...operations.rules import Shape

Converted = tuple[str, list[Shape], dict[str, Any]] | None
"""Kind, input shapes and attributes of an operation; None if the node does no work."""


@dataclass(frozen=True)
class Call:
    """A node of a graph.

    Args:
        inputs: Shapes of the inputs; () for an input that is left out.
        outputs: Shapes of the outputs.
        attributes: Name -> value, as Python values.
        weights: Whether each input is a parameter of the model.
        numbers: Position -> values of small constant inputs.
    """

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    weights: tuple[bool, ...]
    numbers: Mapping[int, tuple[float, ...]]

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return len(self.inputs) > position and self.inputs[position] != ()
