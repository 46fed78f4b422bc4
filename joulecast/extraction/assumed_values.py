"""Assumed values: which experts a router chooses, and which candidates a detector selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .assumptions import Assumptions

UNKNOWN: Any = object()
"""Marks a value that depends on the values of the input, which extraction does not know."""

_LARGEST = 2**20
# Operators by which routers choose experts -> position of the result that holds the chosen indices.
_ROUTERS = {"topk": 1, "argmax": 0, "max": 1, "sort": 1, "argsort": 0}


def routed(
    func: Any, args: Any, kwargs: Mapping[str, Any], made: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Indices that a router chooses if all experts get equally many tokens: each expert in turn.

    Args:
        func: The operator that ran.
        args: Its arguments by position.
        kwargs: Its arguments by name.
        made: Its results on the meta device.

    Returns:
        The result that holds the chosen indices, and its values; None if the operator does not choose along a
        dimension.
    """
    place = _ROUTERS.get(func.overloadpacket.__name__)
    if place is None or place >= len(made) or made[place].is_floating_point() or made[place].numel() > _LARGEST:
        return None
    names = [argument.name for argument in func._schema.arguments]
    dim = {**dict(zip(names, args, strict=False)), **kwargs}.get("dim", -1)
    if dim is None or not args[0].ndim:
        return None
    turns = torch.arange(made[place].numel()) % args[0].shape[dim]
    return made[place], turns.reshape(made[place].shape)


def selected(func: Any, args: Any, most: int) -> Any:
    """Result of an operator that selects by unknown values, assuming that it selects candidates evenly spread.

    Args:
        func: An operator whose result depends on values.
        args: Its arguments.
        most: Number of candidates to select; all of them if there are fewer.

    Returns:
        A real tensor of indices; UNKNOWN for other operators.
    """
    name = func.overloadpacket.__name__
    if name == "nonzero":
        return torch.stack(_spread(args[0].shape, most), dim=1)
    if name == "nms":
        return _spread(args[0].shape[:1], most)[0]
    return UNKNOWN


def decided(func: Any, args: Any, made: list[torch.Tensor], assumptions: Assumptions) -> Any:
    """Result of an operator according to the assumptions about boxes, if later decisions of the model depend on it.

    Args:
        func: The operator that ran.
        args: Its arguments.
        made: Its results on the meta device.
        assumptions: Number and size of the boxes.

    Returns:
        A real tensor; UNKNOWN if the assumptions do not determine the result.
    """
    if not made or not args or not isinstance(args[0], torch.Tensor):
        return UNKNOWN
    name, first = func.overloadpacket.__name__, made[0]
    if name == "sum" and args[0].dtype == torch.bool and assumptions.boxes is not None and not first.ndim:
        # The number of elements that a mask selects.
        return torch.tensor(min(assumptions.boxes, args[0].numel()), dtype=first.dtype)
    if name == "uniform_" and assumptions.boxes is not None and first.numel() == 1:
        # Training images are resized to a randomly drawn size: the middle of the range is assumed.
        low, high = (float(end) for end in (*args[1:], *(0.0, 1.0)[len(args) - 1 :]))
        return torch.full(first.shape, (low + high) / 2, dtype=first.dtype)
    if assumptions.box_side is None or not args[0].is_floating_point():
        return UNKNOWN
    if name == "ceil" and first.ndim == 1:
        # Widths and heights in whole pixels, for key points.
        return torch.full(first.shape, assumptions.box_side, dtype=first.dtype)
    if name == "_to_copy" and first.dtype == torch.int64 and first.ndim == 2 and first.shape[1] == 4:
        # Corners in whole pixels for masks; both corners belong to the box.
        return torch.tensor([0, 0, *[assumptions.box_side - 1] * 2]).expand(first.shape)
    return UNKNOWN


def with_places(func: Any, args: Any, most: int) -> Any:
    """Arguments of `index` with the indices that `selected` assumes instead of masks; other operators' unchanged."""
    if func.overloadpacket.__name__ != "index":
        return args
    indices: list[Any] = []
    for index in args[1]:
        if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
            indices.extend(places.to("meta") for places in _spread(index.shape, most))
        else:
            indices.append(index)
    return (args[0], indices, *args[2:])


def _spread(shape: torch.Size, most: int) -> tuple[torch.Tensor, ...]:
    """Evenly spread positions in a tensor of this shape: one tensor of indices for each dimension."""
    count = shape.numel()
    places = torch.linspace(0, count - 1, min(most, count), dtype=torch.float64).long()
    return torch.unravel_index(places, shape)
