"""Iterations of a model: its inputs, and a function that runs a forward pass, or a forward and a backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..errors import ExtractionError, InputError
from ..extraction.assumptions import refuse_optimizer
from ..extraction.models.transformers_models import is_transformer, named_inputs
from ..operations.inputs import Input, Inputs, shape_text
from ..operations.operation import require_mode

_PLAIN: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
_OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    **_PLAIN,
    **{f"{name}_fused": partial(of, fused=True) for name, of in _PLAIN.items()},
}
_SMALL_RATE = 1e-6
"""Learning rate of the optimizer. It is tiny because steps are measured, not used for training."""


@dataclass
class Steps:
    """Iterations of a model, which all do the same work.

    As a context manager, it sets the mode of the model, and restores the previous mode at the end.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    optimizer: torch.optim.Optimizer | None
    title: str
    _gradients: dict[Any, torch.Tensor] = field(default_factory=dict)

    def __enter__(self) -> Steps:
        self._modes = {part: part.training for part in self.module.modules()}
        self.module.train(self.training)
        return self

    def __exit__(self, *_: object) -> None:
        for part, training in self._modes.items():
            part.training = training
        if self.training:
            self.module.zero_grad(set_to_none=True)

    def run(self) -> None:
        """Run one iteration.

        Raises ExtractionError: the model raises an error. Raises InputError: no output of the model requires a
        gradient, in training.
        """
        gradients: AbstractContextManager[Any] = nullcontext() if self.training else torch.no_grad()
        try:
            with gradients:
                result = self.module(*self.args, **self.kwargs)
                if self.training:
                    self._backward(result)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, InputError):
                raise
            raise ExtractionError(
                f"the model raises {type(error).__name__} when it runs",
                given=str(error).strip().splitlines()[0] if str(error).strip() else None,
                hint="run it on the same inputs without joulecast, and mend that first",
            ) from error

    def _backward(self, result: Any) -> None:
        outputs = [t for t in tree_leaves(_plain(result)) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not outputs:
            raise InputError(
                "no output of this model requires a gradient, so there is no backward pass",
                given=type(self.module).__name__,
                allowed="a model with parameters that require gradients",
                hint='use mode="inference", or set requires_grad on its parameters',
            )
        torch.autograd.backward(outputs, [self._gradient(output) for output in outputs])
        if self.optimizer is None:
            self.module.zero_grad(set_to_none=True)
        else:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def _gradient(self, output: torch.Tensor) -> torch.Tensor:
        """A gradient of ones, which is made once so that making it is not accounted to a module."""
        key = output.shape, output.dtype, output.device
        if key not in self._gradients:
            self._gradients[key] = torch.ones_like(output)
        return self._gradients[key]


def steps_of(
    module: torch.nn.Module, inputs: Any, mode: str, device: torch.device | None, optimizer: str | None
) -> Steps:
    """Prepare iterations of a model.

    Args:
        inputs: A tensor, a list of tensors, or tensors by name; or shapes, for which random numbers are drawn.
        device: Device to run on; None for the device of the model's parameters.
        optimizer: sgd, adam or adamw, which makes a tiny step after each backward pass; None for no steps.

    Raises:
        UnknownNameError: There is no such mode or optimizer.
        InputError: `module` is not a module, or `inputs` are neither tensors nor shapes.
    """
    checked_module(module)
    require_mode(mode)
    refuse_optimizer(optimizer, mode)
    if device is not None:
        module.to(device)
    place = device or next((p.device for p in module.parameters()), torch.device("cpu"))
    args, kwargs = _tensors(module, inputs, place)
    shapes = Inputs(tuple(map(Input.of, args)), tuple((name, Input.of(value)) for name, value in kwargs.items()))
    stepper = None if optimizer is None else _OPTIMIZERS[optimizer](module.parameters(), lr=_SMALL_RATE)
    title = f"{type(module).__name__} {shape_text(shapes.shape)}, {mode}, on {place}"
    return Steps(module, args, kwargs, mode == "training", stepper, title)


def checked_module(module: Any) -> torch.nn.Module:
    """Check that a value is a module, and return it. Raises InputError: it is not."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            "this is not a module",
            given=type(module).__name__,
            allowed="a torch.nn.Module",
            hint="pass the model itself; `joulecast account NAME SHAPE` builds models by name",
        )
    return module


def _tensors(
    module: torch.nn.Module, inputs: Any, device: torch.device
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """The positional inputs and the inputs by name, as tensors on the device."""
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    values = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    if isinstance(values, Sequence) and values and all(isinstance(value, torch.Tensor) for value in values):
        moved = tree_map(
            lambda tensor: tensor.to(device), dict(inputs) if isinstance(inputs, Mapping) else list(inputs)
        )
        return ((), moved) if isinstance(moved, dict) else (tuple(moved), {})
    shapes = Inputs.of(inputs)
    if is_transformer(module):
        shapes = named_inputs(module, shapes)
    generator = torch.Generator().manual_seed(0)
    rows = min((part.num_embeddings for part in module.modules() if isinstance(part, torch.nn.Embedding)), default=2)

    def drawn(item: Input, name: str = "") -> torch.Tensor:
        floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        known = item.dtype or getattr(module, "input_dtype", None)
        dtype = getattr(torch, known) if known else floating
        if name.endswith("_mask"):
            return torch.ones(item.shape, dtype=dtype, device=device)
        if dtype.is_floating_point:
            return torch.randn(item.shape, generator=generator).to(device, dtype)
        return torch.randint(0, rows, item.shape, generator=generator).to(device, dtype)

    return tuple(map(drawn, shapes.positional)), {name: drawn(item, name) for name, item in shapes.named}


def _plain(result: Any) -> Any:
    """The outputs of a model as a plain dictionary if they are a mapping of another class, as those of transformers."""
    return dict(result) if isinstance(result, Mapping) else result
