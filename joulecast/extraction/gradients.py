"""Which gradients the backward computes, where some parameters are frozen; and the work of calls that have no kind.

The forward is recorded without autograd. So this follows which tensors depend on a learned parameter, as autograd does
with `requires_grad`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ..operations.dropped import DroppedWork
from .conversions import Bound

_WEIGHTS = frozenset({"weight", "bias", "mat2", "params"})
"""Names of the arguments that are parameters of an operation, in the schemas of its operators."""


class Gradients:
    """Follows which tensors need a gradient."""

    def __init__(self, learned: Iterable[torch.Tensor]) -> None:
        self._learned = {id(tensor) for tensor in learned}
        self._written: dict[int, Any] = {}

    def follow(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Mark the results of an operator that need a gradient."""
        if func.overloadpacket.__name__ == "detach" or not self.needed(args, kwargs):
            return
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
                leaf.needs_gradient = True  # type: ignore[attr-defined]
                if func._schema.is_mutable:
                    # All views of this memory have changed. It is kept alive, so that no other gets its address.
                    self._written[leaf.untyped_storage()._cdata] = leaf.untyped_storage()

    def needed(self, args: Any, kwargs: Mapping[str, Any]) -> bool:
        """Whether the backward runs through an operator with these arguments."""
        return torch.is_grad_enabled() and any(map(self._needs, tree_leaves((args, kwargs))))

    def of(self, operator: str, bound: Bound) -> str:
        """The gradients that an operator computes in the backward; a value of `kind.GRADIENTS`."""
        weights = _WEIGHTS | {"self"} if operator == "addmm" else _WEIGHTS
        needs = {
            name in weights
            for name, value in bound.items()
            if name != "<output>" and any(map(self._needs, tree_leaves(value)))
        }
        if not needs or not torch.is_grad_enabled():
            return "none"
        return "all" if len(needs) == 2 else "parameters" if True in needs else "inputs"

    def _needs(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        marked = id(value) in self._learned or getattr(value, "needs_gradient", False)
        return marked or value.untyped_storage()._cdata in self._written


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
