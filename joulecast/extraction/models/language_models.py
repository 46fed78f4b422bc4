"""Well-known transformers by name, from transformers.toml: class and sizes as published configurations have them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """A class of `transformers`, the repository whose config.json gives its sizes, and those that are not defaults."""

    class_name: str
    source: str
    sizes: Mapping[str, Any] = field(default_factory=dict)


_USUAL = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    "vocab_size",
)


def _architecture(row: dict[str, Any]) -> Architecture:
    class_name, source = row.pop("class"), row.pop("source")
    usual = dict(zip(_USUAL, row.pop("sizes"), strict=True)) if "sizes" in row else {}
    if usual:
        usual["max_position_embeddings"] = 32768
    return Architecture(class_name, source, {**usual, **dict.fromkeys(row.pop("without", ())), **row})


_TABLES = tomllib.loads(Path(__file__).with_name("transformers.toml").read_text(encoding="utf-8"))

SAME_ARCHITECTURE: Mapping[str, str] = _TABLES.pop("same_architecture")
"""Repository -> name of the model whose layers it has, with other weights."""

ARCHITECTURES, _OTHERS, EAGER_TRANSFORMERS = (
    {name: _architecture(row) for name, row in table.items()} for table in _TABLES.values()
)
"""Name -> class and sizes: of models that have templates, of further language models, and with eager attention."""

LANGUAGE_MODELS: Mapping[str, Architecture] = {
    **{name: row for name, row in ARCHITECTURES.items() if row.class_name.endswith(("ForCausalLM", "LMHeadModel"))},
    **_OTHERS,
}

BY_NAME: Mapping[str, Architecture] = {**ARCHITECTURES, **LANGUAGE_MODELS}
"""All transformers that are built by name."""
