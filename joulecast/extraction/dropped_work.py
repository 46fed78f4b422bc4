"""Amount of work of an operator call that has no kind, estimated from its tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ..operations.dropped import DroppedWork


class CallSizes:
    """Computes the work of operator calls of one forward.

    Args:
        parameters: Parameters that the forward uses; their views count as parameters, too.
    """

    def __init__(self, parameters: Collection[torch.Tensor]) -> None:
        self._parameters = {_storage(tensor) for tensor in parameters}
        self._counted: set[int] = set()

    def work(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> DroppedWork:
        """The work of one call, with its arguments and its result on the meta device."""
        read, made = _tensors((args, kwargs)), _tensors(result)
        moved = sum(tensor.nbytes for tensor in {**read, **made}.values())
        learned = [tensor for tensor in read.values() if _storage(tensor) in self._parameters]
        # A parameter that several calls read counts once.
        first = {_storage(tensor): tensor.nbytes for tensor in learned if _storage(tensor) not in self._counted}
        self._counted.update(first)
        return DroppedWork(
            flops=_flops(func, args, kwargs, result),
            moved_bytes=moved,
            parameter_bytes=sum(first.values()),
            output_bytes=sum(tensor.nbytes for place, tensor in made.items() if place not in read),
            largest_bytes=moved - sum(tensor.nbytes for tensor in learned),
        )


def _tensors(values: Any) -> dict[int, torch.Tensor]:
    return {id(leaf): leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _flops(func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> int:
    formula = flop_registry.get(func.overloadpacket)
    if formula is None:
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=result))
    except (AssertionError, TypeError, ValueError):
        return 0  # the formula does not support this form of the operator; its bytes are counted nevertheless
