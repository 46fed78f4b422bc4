"""Whatever users call a model, as a Network. Torch is imported only where a torch model must be looked into."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, MissingDependencyError, unknown_name
from ..networks import Network
from ..operations import MODES, Operation, normalized_shape, real_precision
from .aten import WHITELIST
from .cache import recall, remember

if TYPE_CHECKING:
    import torch

    Model = str | Path | torch.nn.Module | Network | Sequence[tuple[Operation, int]]


def network_of(
    model: Model,
    input_shape: Sequence[int] | None,
    *,
    mode: str = "inference",
    precision: str = "default",
    whitelist: Collection[str] = WHITELIST,
) -> Network:
    """List the operations of a model.

    Args:
        model: Name of a torchvision classification model, a `torch.nn.Module`, a Network, a list of pairs of
            Operation and count, or the path of a network saved as JSON.
        input_shape: Shape of the input, batch first; lists of operations need none.
        mode: inference or training. Operations that are given with the mode training keep it.
        precision: default, fp32, tf32, fp16 or bf16. With "default", operations that are given keep theirs.
        whitelist: Kinds to keep when a model is extracted.

    Raises:
        UnknownNameError: No such model, mode or precision.
        InputError: A shape, file or list that cannot be.
        ExtractionError: The model raises, or needs real values.
        MissingDependencyError: The model needs torch or torchvision, and it is not installed.
    """
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    real_precision("conv2d", precision)
    if isinstance(model, Network):
        return _as_asked(model, mode, precision)
    if isinstance(model, str | Path) and (Path(model).suffix == ".json" or Path(model).is_file()):
        return _as_asked(Network.load(model), mode, precision)
    if isinstance(model, str | Path):
        return _named(str(model), input_shape, mode, precision, whitelist)
    # A module cannot exist without torch, so this does not import it.
    torch_module = sys.modules.get("torch")
    if torch_module is not None and isinstance(model, torch_module.nn.Module):
        from .extraction import trace

        return trace(model, _shape(input_shape), mode=mode, precision=precision, whitelist=whitelist)
    if isinstance(model, Sequence):
        return _as_asked(Network.of(map(_pair, model)), mode, precision)
    raise InputError(
        "this is no model",
        given=type(model).__name__,
        allowed="a torchvision name, a torch.nn.Module, a Network, a list of (Operation, count), a path to a JSON file",
    )


def _shape(input_shape: Sequence[int] | None) -> tuple[int, ...]:
    if input_shape is None:
        raise InputError("a model needs the shape of its input", given="none", allowed="such as (32, 3, 224, 224)")
    return normalized_shape(tuple(input_shape))


def _pair(item: Any) -> tuple[Operation, int]:
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Operation):
        return item[0], item[1]
    raise InputError("a list of operations holds pairs of Operation and count", given=repr(item)[:200])


def _named(
    name: str, input_shape: Sequence[int] | None, mode: str, precision: str, whitelist: Collection[str]
) -> Network:
    shape = _shape(input_shape)
    if whitelist is WHITELIST and (known := recall(name, shape, mode, precision)) is not None:
        return known
    if find_spec("torch") is None:
        raise MissingDependencyError(
            "a model that was never extracted here needs torch and torchvision",
            given=name,
            hint="pip install 'joulecast[torch]', or give a network saved as JSON",
        )
    from .extraction import trace
    from .torchvision_models import build

    network = trace(build(name), shape, mode=mode, precision=precision, name=name, whitelist=whitelist)
    if whitelist is WHITELIST:
        remember(network, shape, mode, precision)
    return network


def _as_asked(network: Network, mode: str, precision: str) -> Network:
    """Operations that are given say themselves what they are, but for what is asked for expressly."""
    if mode == network.mode == "inference" or network.mode == "training":
        if precision == "default":
            return network
        mode = network.mode
    return network.replace(mode=mode, precision=None if precision == "default" else precision)
