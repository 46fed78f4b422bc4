"""Writes a GPU as TOML, in the form of the catalogue, which the argument `gpu` accepts as well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .gpu import GPU


def gpu_toml(gpu: GPU) -> str:
    """The known figures of a GPU, one per line. `read_gpu` reads this text."""
    # An empty list of tensor_precisions says that there are no tensor cores; a missing one says that all use them.
    left_out = {"aliases": (), "sources": ()}
    known = {name: value for name, value in asdict(gpu).items() if value is not None and value != left_out.get(name)}
    return "".join(f"{name} = {_text(value)}\n" for name, value in known.items())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_text(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    # JSON writes texts and numbers as TOML does.
    return json.dumps(value, ensure_ascii=False)
