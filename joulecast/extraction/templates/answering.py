"""Answers requests from templates: a Network that equals the result of extraction, or None if no template covers it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...errors import InputError, JoulecastError, MissingDependencyError, with_extra
from ...operations.inputs import Input, Inputs, shape_text
from ...operations.network import Network
from ...operations.operation import Operation
from .store import ModelTemplates, load, names

OPTIMIZER_PATH = "(optimizer)"
ANY_OPTIMIZER = "sgd"
"""Templates of training end with the step of this optimizer, which is removed or replaced by that of another one."""

_CACHED_NETWORKS = 16


@dataclass(frozen=True)
class Request:
    """A request for a network of a named model.

    Args:
        inputs: A single shape; templates have no further inputs.
        mode: inference or training.
        precision: Any precision that can be requested.
        cache_length: Number of tokens whose keys and values are cached; None for no cache.
        optimizer: Optimizer whose step ends a training iteration; None for no step. The caller has checked the name.
    """

    inputs: Inputs
    mode: str = "inference"
    precision: str = "default"
    cache_length: int | None = None
    optimizer: str | None = None


def answer(name: str, request: Request) -> Network | None:
    """The network of a named model as extraction would list it; None if no template covers the request."""
    try:
        return _network(name, request)
    except InputError:
        return None


def refusal(name: str, request: Request) -> JoulecastError:
    """The error if no template covers a request and torch is not installed. It says what templates cover."""
    model = load(name)
    if model is None:
        close = difflib.get_close_matches(name, names(), n=3, cutoff=0.7)
        meant = f"did you mean {' or '.join(close)}? Or " if close else ""
        return MissingDependencyError(
            "a model that was never extracted here, and has no template, needs torch and torchvision",
            given=name,
            hint=f"{meant}{with_extra('torch')}; or give a network saved as JSON",
        )
    extra = "transformers" if "transformers" in model.libraries else "torch"
    hint = f"{with_extra(extra)}; or give a network saved as JSON"
    if model.outdated:
        return MissingDependencyError(
            f"the template of {name} is outdated: it was made with {model.outdated}", given=name, hint=hint
        )
    given = shape_text(request.inputs.shape)
    try:
        _network(name, request)
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


def _network(name: str, request: Request) -> Network | None:
    """The network. Raises InputError if a template covers the request and the model does not run at this size."""
    model = load(name)
    return None if model is None or model.outdated else _templated(name, request)


# Equal requests get the same object, because results are cached with a network's list of operations.
@lru_cache(maxsize=_CACHED_NETWORKS)
def _templated(name: str, request: Request) -> Network | None:
    """The answer, whether or not the templates are up to date; see `_network`."""
    model = load(name)
    if model is None:
        return None
    sizes, length = _sizes(model, request.inputs), request.cache_length
    setting = model.setting(request.mode, request.precision, cached=length is not None)
    if sizes is None or setting is None:
        return None
    known = sizes if length is None else (*sizes, length)
    regime = next((regime for regime in setting.regimes if regime.holds(known)), None)
    if regime is None or not model.limits.allow(known):
        return None
    template = model.templates[regime.template]
    calls = template.operations(known, request.mode, request.precision)
    named = {title: _shape(shape, model.size_names, sizes) for title, shape in model.inputs.items()}
    return Network.of_calls(
        _with_step(calls, request.optimizer),
        name=name if length is None else f"{name} after {length} tokens",
        input_shape=named.get("", named),
        mode=request.mode,
        dropped=template.dropped,
    )


def _shape(shape: tuple[int | str, ...], size_names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n if isinstance(n, int) else sizes[size_names.index(n)] for n in shape)


def _sizes(model: ModelTemplates, inputs: Inputs) -> tuple[int, ...] | None:
    """Sizes of the input; None if templates do not cover it: it has another rank, a mask, or a type of its own."""
    main, shape = next(iter(model.inputs.items()))
    if len(inputs.all) != 1 or (inputs.named and inputs.named[0][0] != main):
        return None
    item: Input = inputs.all[0]
    if item.dtype is not None or len(item.shape) != len(shape):
        return None
    if any(isinstance(n, int) and n != given for n, given in zip(shape, item.shape, strict=True)):
        return None
    return tuple(given for n, given in zip(shape, item.shape, strict=True) if isinstance(n, str))


def _with_step(calls: list[tuple[Operation, str]], optimizer: str | None) -> Iterator[tuple[Operation, str]]:
    for operation, path in calls:
        if path != OPTIMIZER_PATH:
            yield operation, path
        elif optimizer is not None:
            kind = f"{optimizer}_step"
            shapes, precision, mode = operation.input_shapes, operation.precision, operation.mode
            yield Operation(kind, shapes, precision=precision, mode=mode), path


def _coverage(model: ModelTemplates, request: Request) -> Iterator[str]:
    """The sizes that the templates of a model cover, as a text."""
    setting = model.setting(request.mode, request.precision, cached=request.cache_length is not None)
    if setting is None:
        yield ", ".join(model.settings)
        return
    yield " x ".join(map(str, next(iter(model.inputs.values()))))
    columns = zip(*(regime.ranges for regime in setting.regimes), strict=True)
    for title, column in zip((*model.size_names, "cache_length"), columns, strict=False):
        low, high = min(low for low, _ in column), max(high for _, high in column)
        yield f"{title} {low}" + (f" to {high}" if high > low else "")
    if model.limits.tokens is not None:
        yield f"up to {model.limits.tokens} tokens, with those of a cache"
    if model.limits.elements is not None:
        yield f"batch x tokens up to {model.limits.elements}"
