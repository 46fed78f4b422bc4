"""Values by assumption: which experts a router chooses, and which candidates a detector keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .assumptions import Assumptions

UNKNOWN: Any = object()
"""Stands for a value that only the input has."""

_LARGEST = 2**20
# Where a router chooses: the operator, and which of its results holds the chosen places.
_ROUTERS = {"topk": 1, "argmax": 0, "max": 1, "sort": 1, "argsort": 0}


def routed(
    func: Any, args: Any, kwargs: Mapping[str, Any], made: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """What a router chooses if all experts get equally many tokens: each expert in turn.

    Args:
        func: The operator that ran.
        args: Its arguments by position.
        kwargs: Its arguments by name.
        made: Its results on the meta device.

    Returns:
        The result that holds the chosen places, and its values; None where the operator is no choice along a dimension.
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
    """What an operator that selects by unknown values gives if it keeps so many candidates, evenly spread.

    Args:
        func: An operator whose result depends on values.
        args: Its arguments.
        most: Largest number to keep.

    Returns:
        A real tensor of places; UNKNOWN for an operator that gives something else.
    """
    name = func.overloadpacket.__name__
    if name == "nonzero":
        return torch.stack(_spread(args[0].shape, most), dim=1)
    if name == "nms":
        return _spread(args[0].shape[:1], most)[0]
    return UNKNOWN


def decided(func: Any, args: Any, made: list[torch.Tensor], assumptions: Assumptions) -> Any:
    """What the assumptions on boxes say of the result of an operator, where later decisions depend on it.

    Args:
        func: The operator that ran.
        args: Its arguments.
        made: Its results on the meta device.
        assumptions: How many boxes there are, and how large they are.

    Returns:
        A real tensor; UNKNOWN where they say nothing.
    """
    if not made or not args or not isinstance(args[0], torch.Tensor):
        return UNKNOWN
    name, first = func.overloadpacket.__name__, made[0]
    if name == "sum" and args[0].dtype == torch.bool and assumptions.boxes is not None and not first.ndim:
        # How many a mask selects.
        return torch.tensor(min(assumptions.boxes, args[0].numel()), dtype=first.dtype)
    if name == "uniform_" and assumptions.boxes is not None and first.numel() == 1:
        # One of several sizes that training images are brought to: the middle of the range is drawn.
        low, high = (float(end) for end in (*args[1:], *(0.0, 1.0)[len(args) - 1 :]))
        return torch.full(first.shape, (low + high) / 2, dtype=first.dtype)
    if assumptions.box_side is None or not args[0].is_floating_point():
        return UNKNOWN
    if name == "ceil" and first.ndim == 1:
        # Widths and heights in whole pixels, as key points need them.
        return torch.full(first.shape, assumptions.box_side, dtype=first.dtype)
    if name == "_to_copy" and first.dtype == torch.int64 and first.ndim == 2 and first.shape[1] == 4:
        # Corners in whole pixels, which are part of the box, as masks need them.
        return torch.tensor([0, 0, *[assumptions.box_side - 1] * 2]).expand(first.shape)
    return UNKNOWN


def with_places(func: Any, args: Any, most: int) -> Any:
    """Arguments of `index` with places instead of masks, as `selected` keeps them; those of others as they are."""
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
    """Evenly spread places in a tensor of this shape, one tensor for each dimension."""
    among = shape.numel()
    places = torch.linspace(0, among - 1, min(most, among), dtype=torch.float64).long()
    return torch.unravel_index(places, shape)
