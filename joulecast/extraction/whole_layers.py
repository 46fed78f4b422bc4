"""Recurrent layers in the replayed forward as single functions, as cuDNN runs them.

Without memory PyTorch would unroll them, and its backward would add up the gradients of their weights step by step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_LAYERS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


class _Whole(torch.autograd.Function):
    """Anything that takes these inputs and gives these outputs: one gradient for each input."""

    @staticmethod
    def forward(ctx: Any, outputs: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*inputs)
        return tuple(torch.empty_like(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


class WholeLayers(TorchFunctionMode):
    """Takes recurrent layers for single functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in _LAYERS:
            return result
        nested = (value if isinstance(value, list | tuple) else (value,) for value in args)
        inputs = [tensor for values in nested for tensor in values if isinstance(tensor, torch.Tensor)]
        return _Whole.apply([output.detach() for output in result], *inputs)  # type: ignore[no-untyped-call]
