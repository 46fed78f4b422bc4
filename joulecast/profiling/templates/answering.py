"""What templates answer: a Network equal to an extraction's, or nothing, and then what they could have answered."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ...errors import InputError, MissingDependencyError
from ...inputs import Input, Inputs, shape_text
from ...networks import Network
from ...operations import Operation
from .store import ModelTemplates, Setting, load, names
from .template import HALVES

OPTIMIZER_PATH = "(optimizer)"
ANY_OPTIMIZER = "sgd"
"""Templates of training end in its step, which is taken off, or becomes that of another."""


def answer(
    name: str,
    inputs: Inputs,
    *,
    mode: str,
    precision: str,
    cache_length: int | None = None,
    optimizer: str | None = None,
) -> Network | None:
    """The network of a named model as extraction would list it, or None where no template is known to hold.

    Args:
        name: Of the model.
        inputs: One shape; templates know no further inputs.
        mode: inference or training.
        precision: Any that can be asked for.
        cache_length: Tokens whose keys and values are cached.
        optimizer: Whose step a training iteration ends in; the caller has checked it.
    """
    model = load(name)
    if model is None or model.outdated:
        return None
    sizes = _sizes(model, inputs)
    setting = _setting(model, mode, precision, cache_length)
    if sizes is None or setting is None:
        return None
    known = sizes if cache_length is None else (*sizes, cache_length)
    regime = next((regime for regime in setting.regimes if regime.holds(known)), None)
    if regime is None or not model.limits.allow(known):
        return None
    template = model.templates[regime.template]
    try:
        calls = template.operations(known, mode, precision)
    except InputError:
        return None
    named = {title: _shape(shape, model.size_names, sizes) for title, shape in model.inputs.items()}
    return Network.of_calls(
        _with_step(calls, optimizer),
        name=name if cache_length is None else f"{name} after {cache_length} tokens",
        input_shape=named.get("", named),
        mode=mode,
        dropped=template.dropped,
    )


def refusal(name: str, inputs: Inputs) -> MissingDependencyError:
    """The error where no template holds and torch is not there: what templates hold for."""
    model = load(name)
    hint = "pip install 'joulecast[torch]' (joulecast[transformers] for those), or give a network saved as JSON"
    if model is None:
        close = difflib.get_close_matches(name, names(), n=3, cutoff=0.7)
        meant = f"did you mean {' or '.join(close)}? Or " if close else ""
        return MissingDependencyError(
            "a model that was never extracted here, and has no template, needs torch and torchvision",
            given=name,
            hint=meant + hint,
        )
    if model.outdated:
        return MissingDependencyError(
            f"the template of {name} is outdated: it was made with {model.outdated}", given=name, hint=hint
        )
    return MissingDependencyError(
        f"the template of {name} does not hold for this; it needs torch",
        given=f"{name} {shape_text(inputs.shape)}",
        allowed="; ".join(_coverage(model)),
        hint=hint,
    )


def _shape(shape: tuple[int | str, ...], size_names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n if isinstance(n, int) else sizes[size_names.index(n)] for n in shape)


def _sizes(model: ModelTemplates, inputs: Inputs) -> tuple[int, ...] | None:
    """Sizes of the input, or None where it is none that a template knows: another rank, a mask, a type of its own."""
    main, shape = next(iter(model.inputs.items()))
    if len(inputs.all) != 1 or (inputs.named and inputs.named[0][0] != main):
        return None
    item: Input = inputs.all[0]
    if item.dtype is not None or len(item.shape) != len(shape):
        return None
    if any(isinstance(n, int) and n != given for n, given in zip(shape, item.shape, strict=True)):
        return None
    return tuple(given for n, given in zip(shape, item.shape, strict=True) if isinstance(n, str))


def _setting(model: ModelTemplates, mode: str, precision: str, cache_length: int | None) -> Setting | None:
    key = mode if cache_length is None else f"{mode} cached"
    full = model.settings.get(key)
    if precision not in HALVES or (full is not None and full.halves):
        return full
    return model.settings.get(f"{key} half")


def _with_step(calls: list[tuple[Operation, str]], optimizer: str | None) -> Iterator[tuple[Operation, str]]:
    for operation, path in calls:
        if path != OPTIMIZER_PATH:
            yield operation, path
        elif optimizer is not None:
            kind = f"{optimizer}_step"
            shapes, precision, mode = operation.input_shapes, operation.precision, operation.mode
            yield Operation(kind, shapes, precision=precision, mode=mode), path


def _coverage(model: ModelTemplates) -> Iterator[str]:
    """What its templates hold for, one setting after the other."""
    for name, setting in model.settings.items():
        titles = (*model.size_names, "cache_length")
        spans = []
        for i in range(len(setting.regimes[0].ranges)):
            low = min(regime.ranges[i][0] for regime in setting.regimes)
            high = max(regime.ranges[i][1] for regime in setting.regimes)
            spans.append(f"{titles[i]} {low}" + (f" to {high}" if high > low else ""))
        constants = [str(n) for n in next(iter(model.inputs.values())) if isinstance(n, int)]
        fixed = f" ({' and '.join(constants)} fixed)" if constants else ""
        yield f"{name}: {', '.join(spans)}{fixed}"
    if model.limits.tokens is not None:
        yield f"up to {model.limits.tokens} tokens, with those of a cache"
    if model.limits.elements is not None:
        yield f"batch x tokens up to {model.limits.elements}"
