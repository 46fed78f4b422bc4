"""Language models by name. Their parts are read from a file, so that nothing has to be extracted.

The file is made from the table of `joulecast.extraction.models.language_models`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ..extraction.models.spelling import known_as
from ..system.caches import remembered
from .decoder import PARTS, Decoder

FILE = "decoders.json.gz"

NO_IMAGES = "the part that reads images is not predicted: count their tokens as tokens of the prompt"

TOP_P = ("llama", "qwen", "gemma", "deepseek", "nemotron")
"""Beginnings of names of models whose generation_config.json (of Qwen2 and 2.5: of their Instruct models) sets top_p or
top_k. Those of GPT-2, GPT-J, Falcon, OPT, BLOOM, Pythia, Mistral, Mixtral, Phi and GPT-OSS set neither."""


@cache
def _file() -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(gzip.decompress(files(__package__).joinpath(FILE).read_bytes()))
    return content


@remembered(lambda decoder: 50_000)  # Users choose the names.
def known_decoder(name: str) -> Decoder | None:
    """The parts of a model by its name, however it is spelled; None if the name is unknown."""
    name = known_as(name)
    value = _file().get(name)
    return None if value is None else decoder_from_json(name, value)


def decoder_to_json(decoder: Decoder) -> dict[str, Any]:
    """A decoder as plain lists and dictionaries, without its name."""
    return {
        "tied": decoder.tied,
        "context": decoder.context,
        "parts": [[type(part).__name__, vars(part), list(modules)] for part, modules in decoder.parts],
    }


def decoder_from_json(name: str, value: Mapping[str, Any]) -> Decoder:
    """Read a decoder from the form that `decoder_to_json` writes."""
    parts = tuple((PARTS[kind](**sizes), tuple(modules)) for kind, sizes, modules in value["parts"])
    notes = (NO_IMAGES,) if "_vl_" in name else ()
    return Decoder(name, parts, value["tied"], value["context"], name.startswith(TOP_P), notes)
