"""The templates of a model as a file: gzipped JSON, with the digest and the versions that it was made from."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...operations.precisions import HALF_PRECISIONS
from ..cache import library_version
from ..digests import digest
from .template import Template

FORMAT_VERSION = 2
FOLDER = Path(__file__).with_name("data")

Range = tuple[int, int]
"""Smallest and largest value, both included."""


@dataclass(frozen=True)
class Limits:
    """Limits to combinations of sizes (batch, tokens, length of a cache).

    Args:
        tokens: Most tokens of input and cache together, if positions have a table; None for no limit.
        elements: Most elements of an input. Extraction stores values that a model creates itself, such as positions,
            only up to this number of elements. Larger inputs cannot be compared with extraction.
    """

    tokens: int | None = None
    elements: int | None = None

    def allow(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes are within these limits."""
        return (self.tokens is None or sum(sizes[1:]) <= self.tokens) and (
            self.elements is None or sizes[0] * sizes[1] <= self.elements
        )


@dataclass(frozen=True)
class Regime:
    """Sizes of the input that one template covers.

    Args:
        ranges: Range of each size, in order.
        template: Index of the template in the model's templates.
    """

    ranges: tuple[Range, ...]
    template: int

    def holds(self, sizes: tuple[int, ...]) -> bool:
        """Whether it contains these sizes."""
        return all(low <= n <= high for (low, high), n in zip(self.ranges, sizes, strict=True))


@dataclass(frozen=True)
class Setting:
    """A mode with or without a cache; or one of these in half precision, if that runs other calls.

    Args:
        regimes: Regimes in which templates were checked. The first that contains the sizes is used.
        halves: Half precisions for which they hold.
    """

    regimes: tuple[Regime, ...]
    halves: tuple[str, ...]


@dataclass(frozen=True)
class ModelTemplates:
    """All templates of a model.

    Args:
        inputs: Shape of each input by its name ("" for one without): constants and names of sizes.
        settings: Name -> setting. A name is a mode, followed by " cached" for a setting with a cache, and by a half
            precision that has templates of its own.
        templates: The templates, which regimes refer to by their index.
        limits: Limits to combinations of sizes, which hold in all regimes.
        libraries: Name -> version of each library that the model was extracted with.
        operators: Every operator that the model runs, such as "aten.linear".
        digest: What extraction made of these operators (digests.py).
    """

    inputs: Mapping[str, tuple[int | str, ...]]
    settings: Mapping[str, Setting]
    templates: tuple[Template, ...]
    limits: Limits = Limits()
    libraries: Mapping[str, str] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    digest: str = ""

    @property
    def size_names(self) -> tuple[str, ...]:
        """Names of the sizes of the input, in order, without that of a cache."""
        names = (n for shape in self.inputs.values() for n in shape if isinstance(n, str))
        return tuple(dict.fromkeys(names))

    def setting(self, mode: str, precision: str, *, cached: bool) -> Setting | None:
        """The setting of a mode and precision; None if there is none."""
        key = f"{mode} cached" if cached else mode
        if precision not in HALF_PRECISIONS:
            return self.settings.get(key)
        known = (self.settings.get(name) for name in (key, *(f"{key} {half}" for half in HALF_PRECISIONS)))
        return next((setting for setting in known if setting is not None and precision in setting.halves), None)

    @property
    def outdated(self) -> str | None:
        """The first library whose installed version differs from that of the templates; None if there is none."""
        if self.digest != digest(self.operators):
            return "an extraction that took its operators for something else"
        for name, made_with in self.libraries.items():
            if (here := library_version(name)) not in ("none", made_with):
                return f"{name} {made_with}, and {here} is installed"
        return None

    def to_dict(self) -> dict[str, Any]:
        """The templates as plain lists and dictionaries."""
        return {
            "format": FORMAT_VERSION,
            "operators": list(self.operators),
            "digest": self.digest,
            "libraries": dict(self.libraries),
            "inputs": {name: list(shape) for name, shape in self.inputs.items()},
            "limits": [self.limits.tokens, self.limits.elements],
            "settings": {
                name: {
                    "regimes": [[[list(r) for r in regime.ranges], regime.template] for regime in setting.regimes],
                    "halves": list(setting.halves),
                }
                for name, setting in self.settings.items()
            },
            "templates": [template.to_dict() for template in self.templates],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ModelTemplates:
        """Read what `to_dict` wrote."""
        settings = {
            name: Setting(
                tuple(Regime(tuple((low, high) for low, high in ranges), i) for ranges, i in item["regimes"]),
                tuple(item["halves"]),
            )
            for name, item in value["settings"].items()
        }
        return cls(
            {name: tuple(shape) for name, shape in value["inputs"].items()},
            settings,
            tuple(map(Template.from_dict, value["templates"])),
            Limits(*value["limits"]),
            value["libraries"],
            tuple(value["operators"]),
            value["digest"],
        )


def names() -> list[str]:
    """Names of all models that have templates."""
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


@functools.lru_cache(maxsize=32)
def load(name: str) -> ModelTemplates | None:
    """The templates of a model; None if it has none, or if their format has another version."""
    path = FOLDER / f"{name}.json.gz"
    if not name.isidentifier() or not path.is_file():
        return None
    value = json.loads(gzip.decompress(path.read_bytes()))
    return ModelTemplates.from_dict(value) if value["format"] == FORMAT_VERSION else None


def save(name: str, model: ModelTemplates) -> None:
    """Write the templates of a model. Equal templates give equal bytes."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(model.to_dict(), separators=(",", ":"))
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    load.cache_clear()
