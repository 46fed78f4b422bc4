"""Templates: operations of well-known models at any shape, without torch. Made by `python3 tasks.py templates`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...errors import InputError, JoulecastError, MissingDependencyError, with_extra
from ...operations.inputs import Input, Inputs, shape_text
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.caches import OPERATION_BYTES, remembered
from .store import OPTIMIZER_PATH, ModelTemplates, load, spans

__all__ = ["Request", "answer", "refusal"]


@dataclass(frozen=True)
class Request:
    """A request for a network of a named model. The inputs are a single shape; templates have no further inputs."""

    inputs: Inputs
    mode: str = "inference"
    precision: str = "default"
    cache_length: int | None = None
    optimizer: str | None = None


def answer(name: str, request: Request) -> Network | None:
    """The network of a named model as extraction would list it; None if no template covers the request."""
    model = load(name)
    if model is None or model.outdated:
        return None
    try:
        return _templated(name, request)
    except InputError:
        return None


def refusal(name: str, request: Request, known: Collection[str] = ()) -> JoulecastError:
    """The error if no template covers a request and torch is not installed. It says what templates cover.

    `known` are the names of all models that are known, with or without templates.
    """
    model = load(name)
    if model is None:
        if name in known:
            return MissingDependencyError(
                f"what {name} runs in one forward can only be listed with torch",
                given=name,
                hint=f"{with_extra('transformers')}; `joulecast generate` predicts models that write text without it",
            )
        close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.7)
        meant = f"did you mean {' or '.join(close)}? Or " if close else ""
        return MissingDependencyError(
            "this is no model that is known without torch",
            given=name,
            allowed="the names of `joulecast models`, and with torch those of torchvision, transformers and timm",
            hint=f"{meant}{with_extra('torch')}; or give its config.json, or a network saved as JSON",
        )
    extra = "transformers" if "transformers" in model.libraries else "torch"
    hint = f"{with_extra(extra)}; or give a network saved as JSON"
    if model.outdated:
        return MissingDependencyError(
            f"the template of {name} is outdated: it was made with {model.outdated}", given=name, hint=hint
        )
    given = shape_text(request.inputs.shape)
    try:
        _templated(name, request)
    except InputError as error:
        return InputError(
            f"{name} does not run on this input: {error.what}",
            given=f"{given}: {error.given}",
            allowed=error.allowed,
            hint=error.hint,
        )
    return MissingDependencyError(
        f"the template of {name} does not hold for this {request.mode}; it needs torch",
        given=given if request.cache_length is None else f"{given} after {request.cache_length} tokens",
        allowed="; ".join(_coverage(model, request)),
        hint=hint,
    )


# Equal requests get the same object, because results are cached with a network's list of operations.
@remembered(lambda network: OPERATION_BYTES * (1 + len(network or ())))
def _templated(name: str, request: Request) -> Network | None:
    """The network, whether or not the templates are up to date; None if they do not cover the request.

    Raises InputError: they do, and the model does not run at this size.
    """
    model = load(name)
    if model is None:
        return None
    sizes, length = _sizes(model, request.inputs), request.cache_length
    setting = model.setting(request.mode, request.precision, cached=length is not None)
    if sizes is None or setting is None:
        return None
    regime_sizes = sizes if length is None else (*sizes, length)
    regime = next((regime for regime in setting.regimes if regime.holds(regime_sizes)), None)
    if regime is None or not model.limits.allow(regime_sizes):
        return None
    template = model.templates[regime.template]
    calls = template.operations(regime_sizes, request.mode, request.precision)
    values = dict(zip(model.size_names, sizes, strict=True))
    named = {
        title: tuple(n if isinstance(n, int) else values[n] for n in shape) for title, shape in model.inputs.items()
    }
    return Network.of_calls(
        (_with_step(call, request.optimizer) for call in calls if request.optimizer or call[1] != OPTIMIZER_PATH),
        name=name if length is None else f"{name} after {length} tokens",
        input_shape=named.get("", named),
        mode=request.mode,
        dropped=template.dropped,
    )


def _sizes(model: ModelTemplates, inputs: Inputs) -> tuple[int, ...] | None:
    """Sizes of the input; None if templates do not cover it: it has another rank, a mask, or a type of its own."""
    main, shape = next(iter(model.inputs.items()))
    if len(inputs.all) != 1 or (inputs.named and inputs.named[0][0] != main):
        return None
    item: Input = inputs.all[0]
    pairs = list(zip(shape, item.shape, strict=False))
    fixed = all(n == given for n, given in pairs if isinstance(n, int))
    if item.dtype is not None or len(item.shape) != len(shape) or not fixed:
        return None
    return tuple(given for n, given in pairs if isinstance(n, str))


def _with_step(call: tuple[Operation, str], optimizer: str | None) -> tuple[Operation, str]:
    operation, path = call
    if path != OPTIMIZER_PATH:
        return call
    shapes, precision, mode = operation.input_shapes, operation.precision, operation.mode
    return Operation(f"{optimizer}_step", shapes, precision=precision, mode=mode), path


def _coverage(model: ModelTemplates, request: Request) -> Iterator[str]:
    """The sizes that the templates of a model cover, as a text."""
    setting = model.setting(request.mode, request.precision, cached=request.cache_length is not None)
    if setting is None:
        yield ", ".join(model.settings)
        return
    yield " x ".join(map(str, next(iter(model.inputs.values()))))
    for title, (low, high) in spans(setting.regimes, (*model.size_names, "cache_length")).items():
        yield f"{title} {low}" + (f" to {high}" if high > low else "")
    if model.limits.tokens is not None:
        yield f"up to {model.limits.tokens} tokens, with those of a cache"
    if model.limits.elements is not None:
        yield f"batch x tokens up to {model.limits.elements}"
