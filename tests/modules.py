"""Small modules for tests, and what PyTorch itself counts of a module."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def module(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """A module with these parts, whose forward is a function of itself and its inputs."""
    made = type("Made", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def counted_flops(model: nn.Module, shape: tuple[int, ...]) -> int:
    """FLOPs of the products of a forward and a backward."""
    model = model.train().to("meta")
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(shape, device="meta")).sum().backward()
    return int(counter.get_total_flops())


def kept_bytes(model: nn.Module, given: tuple[int, ...] | torch.Tensor) -> int:
    """Bytes of all storages that autograd keeps after a forward, without parameters, and the inputs of checkpoints.

    The model runs on an input, or on one of a shape on the meta device.
    """
    parameters = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            kept[storage._cdata] = storage  # The storage is kept alive. Otherwise another one could get its address.
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.train()(given if isinstance(given, torch.Tensor) else torch.empty(given, device="meta"))
    return sum(storage.nbytes() for storage in kept.values())
