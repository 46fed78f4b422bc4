"""Recurrent layers and torchvision's `roi_align` as single functions of autograd.

The backward is run on the meta device to find where gradients are added up (`tracing.Forward.record_accumulations`).
There, PyTorch would unroll a recurrent layer into its steps and add up the gradients of its weights step by step. On a
GPU, one call of cuDNN computes the layer. For `roi_align`, torchvision has no backward on the meta device at all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

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
