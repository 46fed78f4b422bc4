"""Parts of a forward that autograd treats as one: checkpoints, recurrent layers, and torchvision's `roi_align`.

torch.utils.checkpoint runs parts of a forward again in the backward, instead of storing their tensors. Recurrent layers
and `roi_align` become single functions of autograd: the backward is run on the meta device to find where gradients are
added up (`tracing.Forward.record_accumulations`), and PyTorch would unroll them there.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

from ..operations.operation import Operation

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
    generator, function, mine = (
        checkpoint._checkpoint_without_reentrant_generator,
        checkpoint.CheckpointFunction,
        threading.get_ident(),
    )
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

    Args:
        calls: Operations of the forward with the paths of their modules.
        stops_early: Whether recomputing stops when all tensors are there that the backward needs. The last product is
            not repeated then, because its inputs are saved before it runs.
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
        nested = (value if isinstance(value, list | tuple) else (value,) for value in args)
        inputs = [tensor for values in nested for tensor in values if isinstance(tensor, torch.Tensor)]
        outputs = [result] if isinstance(result, torch.Tensor) else result
        made = _Whole.apply([output.detach() for output in outputs], *inputs)  # type: ignore[no-untyped-call]
        return made[0] if isinstance(result, torch.Tensor) else made
