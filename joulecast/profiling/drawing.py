"""Draws inputs for operations that are measured: standard normal numbers, valid indices, and masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from ..operations.operation import Operation
from .functions import scattered_rows

POSITIVE_INPUTS = frozenset({"log", "sqrt", "rsqrt", "pow"})
"""Kinds that turn negative numbers into NaN, which would change their power."""

MASKS: Mapping[str, int] = {"where": 0, "masked_fill": 1}
"""Kind -> index of its input that is a mask."""


def _rows(operation: Operation) -> int:
    rows: int = operation.attributes["num_embeddings"]
    return rows


def _along(operation: Operation) -> int:
    dim: int = operation.attributes["dim"]
    return operation.input_shapes[0][dim]


INDICES: Mapping[str, tuple[int, Callable[[Operation], int]]] = {
    "embedding": (0, _rows),
    "embedding_bag": (0, _rows),
    "gather": (1, _along),
    "index_select": (1, _along),
    "scatter": (2, scattered_rows),
    "one_hot": (0, lambda operation: int(operation.attributes["num_classes"])),
}
"""Kind -> number of its input that holds indices, and a function that gives how many values these may have."""


def draw_inputs(
    operation: Operation, device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> list[torch.Tensor]:
    """Draw random inputs for an operation, because regular data would draw less power.

    Args:
        operation: The operation to run. In training, its inputs of numbers require gradients.
        device: The device that they are drawn on.
        dtype: Type of the inputs that are numbers.
        generator: Random number generator.
    """
    mask = MASKS.get(operation.kind)
    position, values = INDICES.get(operation.kind, (None, None))
    drawn = []
    for i, shape in enumerate(operation.input_shapes):
        if i == mask:
            tensor = torch.rand(shape, generator=generator, device=device) < 0.5
        elif values is not None and i == position:
            tensor = _indices(operation, shape, values(operation), device, generator)
        else:
            tensor = torch.randn(shape, generator=generator, device=device, dtype=dtype)
            if operation.kind in POSITIVE_INPUTS:
                tensor = tensor.abs()
            tensor.requires_grad_(operation.mode == "training" and operation.row.has_gradient)
        drawn.append(tensor)
    return drawn


def _indices(
    operation: Operation, shape: tuple[int, ...], values: int, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    number = math.prod(shape)
    if (
        operation.kind == "scatter" and number <= values
    ):  # Duplicate indices would be written by several threads at once, which is a race.
        return torch.randperm(values, generator=generator, device=device)[:number].reshape(shape)
    return torch.randint(0, values, shape, generator=generator, device=device)
