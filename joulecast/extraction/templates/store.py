"""The templates of a model: the file that holds them, and the networks that are made from it.

The file is compressed JSON, with the digest and the versions that it was made from.
"""

from __future__ import annotations

import difflib
import functools
import json
import lzma
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError, JoulecastError, MissingDependencyError, with_extra
from ...operations.attributes import HALF_PRECISIONS
from ...operations.inputs import Input, Inputs, shape_text
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.caches import OPERATION_BYTES, remembered
from ...system.regular_files import is_file
from ..cache import digest, library_version
from .template import Template

FORMAT_VERSION = 4
FOLDER = Path(__file__).with_name("data")
_SUFFIX = ".json.xz"

Range = tuple[int, int]
"""Smallest and largest value, both included."""


class Limits(NamedTuple):
    """Limits to combinations of sizes (batch, tokens, length of a cache); None for no limit.

    Args:
        tokens: Most tokens of input and cache together, if positions have a table.
        elements: Most elements of an input. Extraction stores values that a model creates itself, such as positions,
            only up to this number, so larger inputs cannot be compared with extraction.
    """

    tokens: int | None = None
    elements: int | None = None

    def allow(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes are within these limits."""
        return (self.tokens is None or sum(sizes[1:]) <= self.tokens) and (
            self.elements is None or sizes[0] * sizes[1] <= self.elements
        )


class Regime(NamedTuple):
    """Ranges of the sizes of the input, in order, that one template covers, and its index in the model's templates."""

    ranges: tuple[Range, ...]
    template: int

    def holds(self, sizes: tuple[int, ...]) -> bool:
        """Whether it contains these sizes."""
        return all(low <= n <= high for (low, high), n in zip(self.ranges, sizes, strict=True))


class Setting(NamedTuple):
    """A mode with or without a cache; or one of these in half precision, if that runs other calls.

    The first of the regimes, in which templates were checked, that contains the sizes is used. `halves` are the half
    precisions for which they hold.
    """

    regimes: tuple[Regime, ...]
    halves: tuple[str, ...]


class ModelTemplates(NamedTuple):
    """All templates of a model.

    Args:
        inputs: Shape of each input by its name ("" for one without): constants and names of sizes.
        settings: Name -> setting. A name is a mode, followed by " cached" for a setting with a cache, and by a half
            precision that has templates of its own.
        libraries: Name -> version of each library that the model was extracted with.
        operators: Every operator that the model runs, such as "aten.linear".
        digest: What extraction made of these operators (cache.py).
    """

    inputs: Mapping[str, tuple[int | str, ...]]
    settings: Mapping[str, Setting]
    templates: tuple[Template, ...]
    limits: Limits
    libraries: Mapping[str, str]
    operators: tuple[str, ...]
    digest: str

    @property
    def size_names(self) -> tuple[str, ...]:
        """Names of the sizes of the input, in order, without that of a cache."""
        names = (n for shape in self.inputs.values() for n in shape if isinstance(n, str))
        return tuple(dict.fromkeys(names))

    @property
    def example(self) -> tuple[int, ...]:
        """A usual shape of the main input, at which the model runs."""
        regimes = (self.settings.get("inference") or next(iter(self.settings.values()))).regimes
        columns = zip(*(regime.ranges for regime in regimes), strict=True)
        limits = {
            size: (min(low for low, _ in column), max(high for _, high in column))
            for size, column in zip(self.size_names, columns, strict=False)
        }
        return usual_shape(next(iter(self.inputs.values())), limits)

    def setting(self, mode: str, precision: str, *, cached: bool) -> Setting | None:
        """The setting of a mode and precision; None if there is none."""
        key = f"{mode} cached" if cached else mode
        if precision not in HALF_PRECISIONS:
            return self.settings.get(key)
        settings = (self.settings.get(name) for name in (key, *(f"{key} {half}" for half in HALF_PRECISIONS)))
        return next((setting for setting in settings if setting is not None and precision in setting.halves), None)

    @property
    def outdated(self) -> str | None:
        """The first library whose installed version differs from that of the templates; None if there is none."""
        if self.digest != digest(self.operators):
            return "an extraction that took its operators for something else"
        for name, made_with in self.libraries.items():
            if (here := library_version(name)) not in ("none", made_with):
                return f"{name} {made_with}, and {here} is installed"
        return None


def usual_shape(shape: Sequence[int | str], limits: Mapping[str, Range]) -> tuple[int, ...]:
    """An example for a shape with names for sizes, each with its least and its largest value, if it has any."""
    usual = {"batch": 32 if len(shape) == 4 else 8, "height": 224, "width": 224, "tokens": 128}

    def within(name: str) -> int:
        low, high = limits.get(name, (1, usual[name]))
        return min(max(usual[name], low), high)

    return tuple(n if isinstance(n, int) else within(n) for n in shape)


def names() -> list[str]:
    """Names of all models that have templates."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in FOLDER.glob(f"*{_SUFFIX}"))


def file_of(name: str) -> Path:
    """The file with the templates of a model: compressed JSON, in which tuples are lists."""
    return FOLDER / f"{name}{_SUFFIX}"


@functools.lru_cache(maxsize=32)
def load(name: str) -> ModelTemplates | None:
    """The templates of a model; None if it has none, or if their format has another version."""
    if not name.isidentifier() or not is_file(file_of(name)):
        return None
    value = json.loads(lzma.decompress(file_of(name).read_bytes()))
    if value.pop("format") != FORMAT_VERSION:
        return None
    settings = {
        key: Setting(tuple(Regime(tuple(map(tuple, ranges)), place) for ranges, place in regimes), tuple(halves))
        for key, (regimes, halves) in value.pop("settings").items()
    }
    return ModelTemplates(
        inputs={key: tuple(shape) for key, shape in value.pop("inputs").items()},
        settings=settings,
        templates=tuple(map(Template.read, value.pop("templates"))),
        limits=Limits(*value.pop("limits")),
        operators=tuple(value.pop("operators")),
        **value,
    )


OPTIMIZER_PATH = "(optimizer)"
ANY_OPTIMIZER = "sgd"
"""Templates of training end with the step of this optimizer, which is removed or replaced by that of another one."""


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
    try:
        return _network(name, request)
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
@remembered(lambda network: OPERATION_BYTES * (1 + len(network or ())))
def _templated(name: str, request: Request) -> Network | None:
    """The answer, whether or not the templates are up to date; see `_network`."""
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
        _with_step(calls, request.optimizer),
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
