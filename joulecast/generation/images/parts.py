"""The parts of pipelines, text encoders, denoisers and decoders: their operations at any sizes, from templates.

`python benchmarks/template_parts.py` traced the classes of diffusers and transformers for them.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...extraction.templates.store import Template
from ...operations.operation import Operation

FOLDER = Path(__file__).with_name("parts")
Calls = list[tuple[Operation, str]]
"""Operations with the path of the module that calls each, in order."""


class Part(NamedTuple):
    """The templates of a part.

    Args:
        sizes: Names of the sizes that all templates are made of.
        templates: Name of a piece, or "" for the whole -> template for a batch of one, and for a larger one.
        libraries: Name -> version of each library that the part was traced with.
        operators: Every operator that the part runs, such as "aten.linear".
        digest: What extraction made of these operators (extraction/cache.py).
        maker: The version of the code that made it (benchmarks/template_version.py).
    """

    sizes: tuple[str, ...]
    templates: Mapping[str, tuple[Template, Template]]
    libraries: Mapping[str, str]
    operators: tuple[str, ...]
    digest: str
    maker: str

    def calls(self, sizes: Mapping[str, int], precision: str, piece: str = "") -> Calls:
        """The calls of the part, or of a piece of it, at named sizes. Those that the part does not use are ignored."""
        template = self.templates[piece][sizes["batch"] > 1]
        return template.operations([sizes[name] for name in self.sizes], "inference", precision)


def file_of(name: str) -> Path:
    """The file with the templates of a part: compressed JSON."""
    return FOLDER / f"{name}.json.xz"


@functools.lru_cache(maxsize=32)
def load(name: str) -> Part:
    """The templates of a part."""
    value = json.loads(lzma.decompress(file_of(name).read_bytes()))
    distinct = [Template.read(row) for row in value["templates"]]
    pieces = {piece: (distinct[one], distinct[more]) for piece, (one, more) in value["pieces"].items()}
    made = value["libraries"], tuple(value["operators"]), value["digest"], value["maker"]
    return Part(tuple(value["sizes"]), pieces, *made)
