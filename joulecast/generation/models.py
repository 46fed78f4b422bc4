"""Finding the parts of a language model, however it is given: by name, configuration, config.json or module.

Those of models by name are read from a file, so that nothing has to be extracted. The file is made from the table of
`joulecast.extraction.models.language_models` (benchmarks/generation_tables.py).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..extraction import network_of
from ..extraction.models.language_models import BY_NAME
from ..extraction.models.spelling import known_as, known_names
from ..operations.inputs import LARGEST
from ..operations.network import Network
from ..system.caches import remembered
from ..system.regular_files import MOST_JSON_BYTES, read_json
from .decoder import PARTS, Attention, Decoder, Part
from .fusing import decoder_of

if TYPE_CHECKING:
    from ..extraction.sources import Model

_NARROW = re.compile(r"(.+?)[-_](fp8|awq|gptq|nvfp4|mxfp4|int4)([-_]?(int4|dynamic|block))?", re.IGNORECASE)

# Lengths of the past to try, longest first: long enough to show sliding windows, if the model has so many positions.
_PASTS = (8191, 2047, 1023, 511)


def find_decoder(model: Model) -> Decoder:
    """The parts of a language model."""
    if isinstance(model, Network | list | tuple):
        raise InputError(
            "the operations of a model in one shape are not enough to predict all steps of generation",
            given=type(model).__name__,
            allowed="a name, a configuration, the path of a config.json, or a module",
            hint="give the model itself",
        )
    known = known_decoder(model) if isinstance(model, str) else None
    if known is None and isinstance(model, str):
        from .images.pipelines import refuse_pipeline

        if known_as(model) in known_names():
            raise _writes_no_text(model)
        narrow = _NARROW.fullmatch(model)
        if narrow and known_decoder(narrow[1]):
            raise InputError(
                "the weights of this repository are quantised, which the precision says",
                given=model,
                allowed=f"{known_as(narrow[1])} and a precision",
                hint=f"give {narrow[1]} with precision {narrow[2].lower()!r}",
            )
        refuse_pipeline(model)
    return extracted_decoder(model) if known is None else known


def _writes_no_text(model: Any) -> InputError:
    return InputError(
        "this model does not write text with a decoder alone",
        given=str(model),
        allowed="the names that `joulecast models generate` lists, or the config.json of another such model",
        hint="`joulecast predict` predicts one call of any model",
    )


def extracted_decoder(model: Model, name: str | None = None) -> Decoder:
    """The parts of a language model from its operations; its name is that of the extraction unless one is given."""
    for past in _PASTS:
        try:
            network = network_of(model, (1, 1), precision="bf16", cache_length=past, assume={"experts": "uniform"})
        except InputError as error:
            if "only transformers" in error.what or "no cache of keys" in error.what:
                raise _writes_no_text(model) from error
            if "positions" not in error.what or past == _PASTS[-1]:
                raise
            continue
        break
    settings = _settings(model)
    found = _chunked(decoder_of(network, past), settings)
    return replace(
        found,
        name=name or network.name.partition(" after ")[0],
        tied=bool(settings.get("tie_word_embeddings")),
        context=_context(settings),
        lacking=(NO_IMAGES,) if "vision_config" in settings else (),
    )


def _chunked(decoder: Decoder, settings: Mapping[str, Any]) -> Decoder:
    """The decoder with the chunks that some layers of Llama 4 attend to; a query sees no more than one."""
    chunk, types = settings.get("attention_chunk_size"), settings.get("layer_types")
    if not chunk or not types:
        return decoder

    def window(path: str) -> int | None:
        layer = re.search(r"\.(\d+)\.", path)
        return chunk if layer and types[int(layer[1])] == "chunked_attention" else None

    parts: list[tuple[Part, tuple[str, ...]]] = []
    for part, modules in decoder:
        if not isinstance(part, Attention):
            parts.append((part, modules))
            continue
        for most in dict.fromkeys(map(window, modules)):
            parts.append((replace(part, window=most), tuple(path for path in modules if window(path) == most)))
    return replace(decoder, parts=tuple(parts))


def _context(settings: Mapping[str, Any]) -> int | None:
    """The largest number of tokens that a configuration allows, as vLLM finds it; None if it does not say."""
    said = settings.get("max_position_embeddings") or settings.get("n_positions")
    scaling = settings.get("rope_scaling") or settings.get("rope_parameters")
    if isinstance(scaling, Mapping) and isinstance(scaling.get("factor"), int | float):
        # YaRN stretches the positions that the model was trained on; others state the stretched number already.
        trained = scaling.get("original_max_position_embeddings")
        if isinstance(trained, int) and isinstance(said, int) and max(trained, scaling["factor"]) < LARGEST:
            said = max(said, int(trained * scaling["factor"]))
    return said if isinstance(said, int) else None


def _settings(model: Any) -> Mapping[str, Any]:
    """The settings of a model's configuration; empty for a model that has none."""
    path = Path(model) if isinstance(model, str | Path) else None
    if path is not None and path.suffix == ".json":
        content = read_json(path, MOST_JSON_BYTES, "this configuration")
        return content if isinstance(content, Mapping) else {}
    if isinstance(model, str):
        return BY_NAME[model].sizes if model in BY_NAME else {}
    config = getattr(model, "config", model)
    found: Mapping[str, Any] = config.to_dict() if hasattr(config, "to_dict") else {}
    return found


FILE = "decoders.json.gz"

NO_IMAGES = "prompts are taken to have no images: give their sizes as images, or count their tokens as the prompt's"

TOP_P = ("llama", "qwen", "gemma", "deepseek", "nemotron")
"""Beginnings of names of models whose generation_config.json (of Qwen2 and 2.5: of their Instruct models) sets top_p or
top_k. Those of GPT-2, GPT-J, Falcon, OPT, BLOOM, Pythia, Mistral, Mixtral, Phi and GPT-OSS set neither."""


@cache
def decoders_file() -> Mapping[str, Any]:
    """Name -> decoder in the form that benchmarks/generation_tables.py writes."""
    content: Mapping[str, Any] = json.loads(gzip.decompress(files(__package__).joinpath(FILE).read_bytes()))
    return content


@remembered(lambda decoder: 50_000)  # Users choose the names.
def known_decoder(name: str) -> Decoder | None:
    """The parts of a model by its name, however it is spelled; None if the name is unknown."""
    name = known_as(name)
    value = decoders_file().get(name)
    if value is None:
        return None
    parts = tuple((PARTS[kind](**sizes), tuple(modules)) for kind, sizes, modules in value["parts"])
    notes = (NO_IMAGES,) if "_vl_" in name else ()
    return Decoder(name, parts, value["tied"], value["context"], name.startswith(TOP_P), notes)
