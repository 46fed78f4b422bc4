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


CONTEXTS: Mapping[str, int] = {
    **dict.fromkeys(("gpt2", "gpt2_xl"), 1024),
    **dict.fromkeys(("opt_1_3b", "opt_6_7b", "opt_13b", "opt_30b", "opt_66b"), 2048),
    **dict.fromkeys(("tinyllama_1_1b", "bloom_7b1", "bloom", "pythia_6_9b", "gpt_j_6b", "falcon_7b"), 2048),
    **dict.fromkeys(("llama2_7b", "llama2_13b", "llama2_70b"), 4096),
    **dict.fromkeys(("llama3_8b", "gemma2_9b", "gemma2_27b"), 8192),
    "phi4": 16384,
    **dict.fromkeys(("qwen2_0_5b", "qwen2_5_3b", "mistral_7b", "mistral_7b_v0_1", "mistral_7b_v0_2"), 32768),
    **dict.fromkeys(("mistral_small_24b", "mixtral_8x7b"), 32768),
    **dict.fromkeys(("qwen3_0_6b", "qwen3_1_7b"), 40960),
    "deepseek_v3": 163840,
    "llama4_scout": 10485760,
    "llama4_maverick": 1048576,
}
"""Name -> largest number of tokens of a prompt and its output together (max_position_embeddings of the repository's
config.json). All others take 131,072: Llama 3.1 and 3.2, Gemma 3 and GPT-OSS as they are, Qwen with YaRN, as the model
cards say."""

TOP_P = ("llama", "qwen", "gemma", "deepseek")
"""Beginnings of names of models whose generation_config.json (of Qwen2 and 2.5: of their Instruct models) sets top_p or
top_k. Those of GPT-2, GPT-J, Falcon, OPT, BLOOM, Pythia, Mistral, Mixtral, Phi and GPT-OSS set neither."""


def context_of(name: str) -> int:
    """The largest number of tokens of a prompt and its output together that a known model takes."""
    return CONTEXTS.get(name, 131072)


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
        "parts": [[type(part).__name__, vars(part), list(modules)] for part, modules in decoder.parts],
    }


def decoder_from_json(name: str, value: Mapping[str, Any]) -> Decoder:
    """Read a decoder from the form that `decoder_to_json` writes."""
    parts = tuple((PARTS[kind](**sizes), tuple(modules)) for kind, sizes, modules in value["parts"])
    return Decoder(name, parts, value["tied"], context_of(name), name.startswith(TOP_P))
