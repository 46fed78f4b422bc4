"""The templates of a model: what they consist of, and the file that holds them.

A template has the calls of a model in one setting, with dimensions that follow from the sizes of its input. A dimension
is a constant or a symbol, and a symbol is one of the sizes, the output dimension of an earlier operation (by its own
shape rule), or a product or sum of other symbols. The file is compressed JSON, with the digest and the versions that
it was made from.
"""

from __future__ import annotations

import functools
import json
import lzma
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ...errors import InputError
from ...operations.attributes import ELEMENT_BYTES, HALF_PRECISIONS
from ...operations.entry import Dropped
from ...operations.network import ParameterBytes
from ...operations.operation import Operation, real_precision
from ...operations.rules import size
from ...system.caches import OPERATION_BYTES, remembered
from ...system.regular_files import is_file
from ..cache import digest, library_version

Dimension = int
"""A dimension: a positive number is a constant, and -1 - i stands for symbol i."""


OUTPUT_SIZE = "output_size"
"""The attribute that consists of dimensions."""


def symbol(index: int) -> Dimension:
    """The number that stands for symbol i."""
    return -1 - index


class Symbol(NamedTuple):
    """How a dimension follows from others.

    "output": dimension `numbers[1]` of what step `numbers[0]` returns. "product" and "sum" of the dimensions in
    `numbers`, constants among them: heads x batch, or cached and new tokens.
    """

    how: str
    numbers: tuple[int, ...]


class Step(NamedTuple):
    """An operation whose shapes depend on the sizes of the input; `shapes` are in dimensions, as is an "output_size".

    `is_half` says whether it runs in half precision if the model is requested in half precision.
    """

    kind: str
    shapes: tuple[tuple[Dimension, ...], ...]
    attributes: tuple[tuple[str, Any], ...]
    is_half: bool


class Template(NamedTuple):
    """The calls of a model at all sizes of one regime.

    The first `sizes` symbols are the sizes of the input, and `symbols` are all further ones. `steps` are the distinct
    operations in order of first use; every call is one of these, `calls`, in a module, `paths`.
    """

    sizes: int
    symbols: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    calls: tuple[int, ...]
    paths: tuple[str, ...]
    dropped: tuple[Dropped, ...]

    @classmethod
    def read(cls, row: Sequence[Any]) -> Self:
        """The template that was written as JSON."""
        sizes, symbols, steps, calls, paths, dropped = row
        return cls(
            sizes,
            tuple(Symbol(how, tuple(numbers)) for how, numbers in symbols),
            tuple(Step(*_tuples(each)) for each in steps),
            tuple(calls),
            tuple(paths),
            tuple(Dropped(name, count, tuple(where), reason) for name, count, where, reason, _ in dropped),
        )

    def operations(self, sizes: Sequence[int], mode: str, precision: str) -> list[tuple[Operation, str]]:
        """Every call with its module path, in order, at sizes in the order of the template.

        Raises InputError: the model does not run at these sizes.
        """
        values: dict[Dimension, int] = {symbol(i): n for i, n in enumerate(sizes)}
        done: list[Operation] = []

        def value(dimension: Dimension) -> int:
            if dimension >= 0:
                return dimension
            if dimension not in values:
                how, numbers = self.symbols[-1 - dimension - self.sizes]
                if how == "output":
                    values[dimension] = done[numbers[0]].output_shape[numbers[1]]
                else:
                    values[dimension] = (math.prod if how == "product" else sum)(map(value, numbers))
            return values[dimension]

        # All other operations of a model in half precision stay in the default precision, such as those in fp32.
        full = "default" if precision in HALF_PRECISIONS else precision
        for step in self.steps:
            real = precision if precision in HALF_PRECISIONS and step.is_half else real_precision(step.kind, full)
            shapes = tuple(tuple(map(value, shape)) for shape in step.shapes)
            # PyTorch refuses the variance of a single value, which no shape rule checks.
            if step.kind == "batch_norm" and mode == "training" and size(shapes[0]) == shapes[0][1]:
                raise InputError(
                    "batch norm needs more than one value per channel in training",
                    given=shapes[0],
                    allowed="2 or more",
                    hint="use a larger batch, or ask about inference",
                )
            attributes = tuple(
                (name, tuple(map(value, of)) if name == OUTPUT_SIZE and isinstance(of, tuple) else of)
                for name, of in step.attributes
            )
            done.append(_operation(step.kind, shapes, attributes, real, mode))
        return [(done[position], path) for position, path in zip(self.calls, self.paths, strict=True)]


# Networks at two sizes share many operations. Making one takes longer than predicting it, because it is checked.
@remembered(lambda made: OPERATION_BYTES)
def _operation(
    kind: str, shapes: tuple[tuple[int, ...], ...], attributes: tuple[tuple[str, Any], ...], precision: str, mode: str
) -> Operation:
    return Operation(kind, shapes, dict(attributes), precision=precision, mode=mode)


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


def spans(regimes: Iterable[Regime], names: Sequence[str]) -> dict[str, Range]:
    """Name of each size -> its smallest and its largest value in any of the regimes."""
    columns = zip(*(regime.ranges for regime in regimes), strict=True)
    return {
        name: (min(low for low, _ in column), max(high for _, high in column))
        for name, column in zip(names, columns, strict=False)
    }


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
        return usual_shape(next(iter(self.inputs.values())), spans(regimes, self.size_names))

    def setting(self, mode: str, precision: str, *, cached: bool) -> Setting | None:
        """The setting of a mode and precision; None if there is none."""
        key = f"{mode} cached" if cached else mode
        if precision not in HALF_PRECISIONS:
            return self.settings.get(key)
        settings = (self.settings.get(name) for name in (key, *(f"{key} {half}" for half in HALF_PRECISIONS)))
        return next((setting for setting in settings if setting is not None and precision in setting.halves), None)

    def parameter_bytes(self, precision: str) -> ParameterBytes:
        """Bytes of all parameters, as far as they are learned: those of the optimizer's step at the end of training.

        Whisper's table of positions, 1.3 % of all bytes of its encoder, is the only frozen one that is known.
        """
        template = self.templates[self.settings["training"].regimes[0].template]
        step = template.steps[template.calls[template.paths.index(OPTIMIZER_PATH)]]
        element_bytes = ELEMENT_BYTES[precision if precision in HALF_PRECISIONS else "fp32"]
        nbytes = round(size(step.shapes[0]) * element_bytes)
        return ParameterBytes(nbytes, nbytes)

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


FORMAT_VERSION = 4
FOLDER = Path(__file__).with_name("data")
_SUFFIX = ".json.xz"


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
    settings = {key: _tuples(setting) for key, setting in value.pop("settings").items()}
    return ModelTemplates(
        inputs={key: tuple(shape) for key, shape in value.pop("inputs").items()},
        settings={key: Setting(tuple(Regime(*each) for each in r), halves) for key, (r, halves) in settings.items()},
        templates=tuple(map(Template.read, value.pop("templates"))),
        limits=Limits(*value.pop("limits")),
        operators=tuple(value.pop("operators")),
        **value,
    )


def _tuples(listed: list[Any]) -> tuple[Any, ...]:
    """A list of JSON with tuples in place of it and of the lists in it."""
    return tuple(_tuples(each) if isinstance(each, list) else each for each in listed)


OPTIMIZER_PATH = "(optimizer)"
ANY_OPTIMIZER = "sgd"
"""Templates of training end with the step of this optimizer, which is removed or replaced by that of another one."""
