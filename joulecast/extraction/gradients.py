"""Which gradients a backward computes, what it runs again, and the work of calls that have no kind."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils.flop_counter import flop_registry

from ..operations.entry import DroppedWork
from ..operations.operation import Operation
from .conversions import Bound
from .known_values import tensors_in

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
        for leaf in tensors_in(result):
            if leaf.is_floating_point() or leaf.is_complex():
                leaf.needs_gradient = True  # type: ignore[attr-defined]
                if func._schema.is_mutable:
                    # All views of this memory have changed. It is kept alive, so that no other gets its address.
                    self._written[leaf.untyped_storage()._cdata] = leaf.untyped_storage()

    def needed(self, args: Any, kwargs: Mapping[str, Any]) -> bool:
        """Whether the backward runs through an operator with these arguments."""
        return torch.is_grad_enabled() and any(map(self._needs, tensors_in(args, kwargs)))

    def computed(self, operator: str, bound: Bound) -> str:
        """The gradients that an operator computes in the backward; a value of `kind.GRADIENTS`.

        A bias that is added to a product needs no product for its gradient, which is a sum over rows. If it alone is
        learned, that sum is not counted.
        """
        bias = "self" if operator == "addmm" else "bias" if operator.startswith(("linear", "conv")) else None
        needs = {
            name in _WEIGHTS
            for name, value in bound.items()
            if name not in ("<output>", bias) and any(map(self._needs, tensors_in(value)))
        }
        if not needs or not torch.is_grad_enabled():
            return "none"
        return "all" if len(needs) == 2 else "parameters" if True in needs else "inputs"

    def _needs(self, tensor: torch.Tensor) -> bool:
        marked = id(tensor) in self._learned or getattr(tensor, "needs_gradient", False)
        return marked or tensor.untyped_storage()._cdata in self._written


class CallSizes:
    """Computes the work of operator calls of one forward; views of its parameters count as parameters, too."""

    def __init__(self, parameters: Collection[torch.Tensor]) -> None:
        self._parameters = {_storage(tensor) for tensor in parameters}
        self._counted: set[int] = set()

    def work(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> DroppedWork:
        """The work of one call, with its arguments and its result on the meta device."""
        read, made = ({id(tensor): tensor for tensor in tensors_in(part)} for part in ((args, kwargs), result))
        moved = sum(tensor.nbytes for tensor in {**read, **made}.values())
        learned = [tensor for tensor in read.values() if _storage(tensor) in self._parameters]
        # A parameter that several calls read counts once.
        first = {_storage(tensor): tensor.nbytes for tensor in learned if _storage(tensor) not in self._counted}
        self._counted.update(first)
        flops, formula = 0, flop_registry.get(func.overloadpacket)
        # A formula may not support this form of the operator, whose bytes are counted nevertheless.
        with suppress(AssertionError, TypeError, ValueError):
            flops = int(formula(*args, **kwargs, out_val=result)) if formula else 0
        return DroppedWork(
            flops=flops,
            moved_bytes=moved,
            parameter_bytes=sum(first.values()),
            output_bytes=sum(tensor.nbytes for place, tensor in made.items() if place not in read),
            largest_bytes=moved - sum(tensor.nbytes for tensor in learned),
        )


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


Around = Callable[[Any, bool], AbstractContextManager[None]]
"""What is done around the function of a checkpoint, from its inputs and whether recomputing stops early."""

_SAVE_NOTHING = frozenset({"add", "sub", "neg", "cat", "copy"})
_SAVE_INPUTS = ("convolution", "matmul")  # Families of operations that save what they are given, before they run.


@contextmanager
def followed(around: Around) -> Iterator[None]:
    """Within this context, a checkpoint in this thread is a plain call of its function, with something around it.

    Its two ways (use_reentrant) replace autograd's storing and running in ways that meta tensors do not take. PyTorch
    finds both in its own module when a model calls a checkpoint, so they are replaced there.
    """
    generator, function = checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction
    mine = threading.get_ident()
    signature = inspect.signature(generator)

    def without_reentrant(*given: Any, **named: Any) -> Iterator[None]:
        if threading.get_ident() != mine:
            yield from generator(*given, **named)
            return
        bound = signature.bind(*given, **named).arguments
        with around((bound.get("args", ()), bound.get("kwargs", {})), bound.get("early_stop", True)):
            yield

    class Reentrant:
        @staticmethod
        def apply(run: Callable[..., Any], preserves: bool, *args: Any) -> Any:
            if threading.get_ident() != mine:
                return function.apply(run, preserves, *args)  # type: ignore[no-untyped-call]
            with around(args, False):
                return run(*args)

    module: Any = checkpoint
    module._checkpoint_without_reentrant_generator, module.CheckpointFunction = without_reentrant, Reentrant
    try:
        yield
    finally:
        module._checkpoint_without_reentrant_generator, module.CheckpointFunction = generator, function


def recomputed(calls: Sequence[tuple[Operation, str]], stops_early: bool) -> list[tuple[Operation, str]]:
    """The calls that the backward repeats of a checkpoint's forward.

    If recomputing stops as soon as all tensors are there that the backward needs, the last product is not repeated,
    because its inputs are saved before it runs.
    """
    if not any(operation.has_backward and operation.row.has_gradient for operation, _ in calls):
        return []
    repeated = [call for call in calls if call[0].gradients != "recomputed" and call[0].kind != "checkpoint"]
    if stops_early:
        while repeated and repeated[-1][0].kind in _SAVE_NOTHING:
            repeated.pop()
        if repeated and repeated[-1][0].row.family in _SAVE_INPUTS:
            repeated.pop()
    return [(operation.replace(gradients="recomputed"), path) for operation, path in repeated]


_LAYERS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu", "roi_align"})


class _Whole(torch.autograd.Function):
    """A function with given outputs, whose backward returns one gradient of the right shape for each input."""

    @staticmethod
    def forward(ctx: Any, outputs: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*inputs)
        return tuple(torch.empty_like(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


class WholeLayers(TorchFunctionMode):
    """Replaces recurrent layers and `roi_align` by single functions of autograd."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in _LAYERS:
            return result
        inputs = tensors_in(args)
        outputs = [result] if isinstance(result, torch.Tensor) else result
        made = _Whole.apply([output.detach() for output in outputs], *inputs)  # type: ignore[no-untyped-call]
        return made[0] if isinstance(result, torch.Tensor) else made
