"""Recurrent layers, and pooling of regions, in the replayed forward as single functions, as a GPU runs them.

Without memory PyTorch would unroll recurrent layers, and its backward would add up the gradients of their weights step
by step. Of torchvision's pooling of regions it knows no backward there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_LAYERS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu", "roi_align"})


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
    """Takes recurrent layers and pooling of regions for single functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in _LAYERS:
            return result
        nested = (value if isinstance(value, list | tuple) else (value,) for value in args)
        inputs = [tensor for values in nested for tensor in values if isinstance(tensor, torch.Tensor)]
        outputs = [result] if isinstance(result, torch.Tensor) else result
        made = _Whole.apply([output.detach() for output in outputs], *inputs)  # type: ignore[no-untyped-call]
        return made[0] if isinstance(result, torch.Tensor) else made
