"""Well-known transformers by name, from transformers.toml: class and sizes as published configurations have them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """A class of `transformers`, the repository whose config.json gives its sizes, and those that are not defaults.

    `context` is the largest number of tokens of a prompt and its output together.
    """

    class_name: str
    source: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    context: int = 131072

    @property
    def inputs(self) -> Mapping[str, tuple[int | str, ...]]:
        """Shape of each input by its name: constants and names of sizes."""
        if self.class_name.startswith(("ViT", "CLIPVision")):
            return {"pixel_values": ("batch", 3, 224, 224)}
        if self.class_name == "WhisperEncoder":
            return {"input_features": ("batch", self.sizes.get("num_mel_bins", 80), 3000)}
        both = self.class_name.startswith(("T5", "Bart"))
        return dict.fromkeys(("input_ids", "decoder_input_ids") if both else ("input_ids",), ("batch", "tokens"))


_USUAL = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    "vocab_size",
)


def _architecture(row: dict[str, Any]) -> Architecture:
    class_name, source, context = row.pop("class"), row.pop("source"), row.pop("context", Architecture.context)
    usual = dict(zip(_USUAL, row.pop("sizes"), strict=True)) if "sizes" in row else {}
    if usual:
        usual["max_position_embeddings"] = 32768
    return Architecture(class_name, source, {**usual, **dict.fromkeys(row.pop("without", ())), **row}, context)


_TABLES = tomllib.loads(Path(__file__).with_name("transformers.toml").read_text(encoding="utf-8"))

SAME_ARCHITECTURE: Mapping[str, str] = _TABLES.pop("same_architecture")
"""Repository -> name of the model whose layers it has, with other weights."""

BY_NAME, EAGER_TRANSFORMERS = ({name: _architecture(row) for name, row in table.items()} for table in _TABLES.values())
"""Name -> class and sizes: of all transformers that are built by name, and of those with eager attention."""

LANGUAGE_MODELS: Mapping[str, Architecture] = {
    name: row for name, row in BY_NAME.items() if row.class_name.endswith(("ForCausalLM", "LMHeadModel"))
}
"""Those that write text."""
