"""Traces a module with the further inputs that its kind of model needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..operations.inputs import Inputs
from ..operations.network import Network
from .assumptions import Assumptions

if TYPE_CHECKING:
    import torch


def traced(
    module: torch.nn.Module, inputs: Inputs, cache_length: int | None, options: dict[str, Any], name: str | None = None
) -> Network:
    """Trace a module. Transformers, and detectors in training, get the further inputs that they need.

    `options` are the keyword arguments of `trace`.
    """
    from .models.detectors import is_detector, prepare_training
    from .models.transformers_models import is_transformer, named_inputs, prepare
    from .tracing import trace

    name = name or type(module).__name__
    if is_transformer(module):
        title = name if cache_length is None else f"{name} after {cache_length} tokens"
        return trace(
            module,
            named_inputs(module, inputs),
            name=title,
            prepare=lambda forward: prepare(forward, options["mode"], cache_length),
            **options,
        )
    if cache_length is not None:
        raise InputError(
            "only transformers have a cache of keys and values",
            given=f"cache_length={cache_length} for {name}",
            hint="leave out cache_length",
        )
    if options["mode"] == "training" and is_detector(module):
        boxes = Assumptions.of(options.get("assume")).boxes
        return trace(module, inputs, name=name, prepare=lambda forward: prepare_training(forward, boxes), **options)
    return trace(module, inputs, name=name, **options)


def configured(config: Any, inputs: Inputs, cache_length: int | None, options: dict[str, Any]) -> Network:
    """Build the transformer of a configuration without weights, and trace it; for the arguments see `traced`."""
    from .models.transformers_models import from_config

    return traced(from_config(config), inputs, cache_length, options)
