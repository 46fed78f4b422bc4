"""Templates: operations of well-known models at any shape, without torch. Made by `python3 tasks.py templates`."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from ...errors import InputError, JoulecastError, MissingDependencyError, with_extra
from ...operations.attributes import ELEMENT_BYTES
from ...operations.inputs import Inputs, shape_text
from ...operations.network import Network, ParameterBytes
from ...operations.operation import Operation
from ...system.caches import OPERATION_BYTES, remembered
from ..job import Job
from .store import OPTIMIZER_PATH, ModelTemplates, load, spans

__all__ = ["answer", "refusal"]


def answer(name: str, job: Job) -> Network | None:
    """The network of a named model as extraction would list it; None if no template covers the job.

    The name takes the place of the job's model. Its mode, precision, cache and optimizer are heeded, and nothing else.
    """
    model = load(name)
    if model is None or model.outdated:
        return None
    try:
        return _templated(name, *_asked(job))
    except InputError:
        return None


def refusal(name: str, job: Job, known: Collection[str] = ()) -> JoulecastError:
    """The error if no template covers a job and torch is not installed. It says what templates cover.

    `known` are the names of all models that are known, with or without templates.
    """
    model = load(name)
    if model is None and name in known:
        return MissingDependencyError(
            f"what {name} runs in one forward can only be listed with torch",
            given=name,
            hint=f"{with_extra('transformers')}; `joulecast generate` predicts models that write text without it",
        )
    if model is None:
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
        what = f"the template of {name} is outdated: it was made with {model.outdated}"
        return MissingDependencyError(what, given=name, hint=hint)
    given = shape_text(Inputs.of(job.input_shape).shape)
    try:
        _templated(name, *_asked(job))
    except InputError as error:
        what, given = f"{name} does not run on this input: {error.what}", f"{given}: {error.given}"
        return InputError(what, given=given, allowed=error.allowed, hint=error.hint)
    return MissingDependencyError(
        f"the template of {name} does not hold for this {job.mode}; it needs torch",
        given=given if job.cache_length is None else f"{given} after {job.cache_length} tokens",
        allowed=_coverage(model, job),
        hint=hint,
    )


def _coverage(model: ModelTemplates, job: Job) -> str:
    """The sizes that the templates of a model cover."""
    setting = model.setting(job.mode, job.precision, cached=job.cache_length is not None)
    if setting is None:
        return ", ".join(model.settings)
    ranges = spans(setting.regimes, (*model.size_names, "cache_length")).items()
    parts = [
        " x ".join(map(str, next(iter(model.inputs.values())))),
        *(f"{title} {low}" + (f" to {high}" if high > low else "") for title, (low, high) in ranges),
    ]
    if model.limits.tokens is not None:
        parts.append(f"up to {model.limits.tokens} tokens, with those of a cache")
    if model.limits.elements is not None:
        parts.append(f"batch x tokens up to {model.limits.elements}")
    return "; ".join(parts)


def _asked(job: Job) -> tuple[Inputs, str, str, int | None, str | None]:
    return Inputs.of(job.input_shape), job.mode, job.precision, job.cache_length, job.optimizer


# Equal questions get the same object, because results are cached with a network's list of operations.
@remembered(lambda network: OPERATION_BYTES * (1 + len(network or ())))
def _templated(
    name: str, inputs: Inputs, mode: str, precision: str, cache_length: int | None, optimizer: str | None
) -> Network | None:
    """The network, whether or not the templates are up to date; None if they do not cover the question.

    Raises InputError: they do, and the model does not run at this size.
    """
    model = load(name)
    if model is None:
        return None
    main, shape = next(iter(model.inputs.items()))
    item, setting = inputs.all[0], model.setting(mode, precision, cached=cache_length is not None)
    # Templates cover neither a mask nor inputs with a type of their own.
    plain = len(inputs.all) == 1 and (not inputs.named or inputs.named[0][0] == main) and item.dtype is None
    if not plain or setting is None or len(item.shape) != len(shape):
        return None
    pairs = [*zip(shape, item.shape, strict=True)]
    if any(n != given for n, given in pairs if isinstance(n, int)):
        return None
    values = {n: given for n, given in pairs if isinstance(n, str)}
    sizes = (*values.values(), *(() if cache_length is None else (cache_length,)))
    regime = next((regime for regime in setting.regimes if regime.holds(sizes)), None)
    if regime is None or not model.limits.allow(sizes):
        return None
    template = model.templates[regime.template]
    calls = template.operations(sizes, mode, precision)
    named = {title: tuple(n if isinstance(n, int) else values[n] for n in of) for title, of in model.inputs.items()}
    return Network.of_calls(
        (_with_step(call, optimizer) for call in calls if optimizer or call[1] != OPTIMIZER_PATH),
        name=name if cache_length is None else f"{name} after {cache_length} tokens",
        input_shape=named.get("", named),
        mode=mode,
        dropped=template.dropped,
        parameter_bytes=None if optimizer else _parameter_bytes(calls),
    )


def _parameter_bytes(calls: Collection[tuple[Operation, str]]) -> ParameterBytes | None:
    """Bytes of the parameters, of which the step that is left out has each once, also those that modules share."""
    steps = [operation for operation, path in calls if path == OPTIMIZER_PATH]
    stored = round(sum(step.input_size * ELEMENT_BYTES[step.precision] for step in steps))
    return ParameterBytes(stored, stored) if steps else None


def _with_step(call: tuple[Operation, str], optimizer: str | None) -> tuple[Operation, str]:
    operation, path = call
    if path != OPTIMIZER_PATH:
        return call
    shapes, precision, mode = operation.input_shapes, operation.precision, operation.mode
    return Operation(f"{optimizer}_step", shapes, precision=precision, mode=mode), path
