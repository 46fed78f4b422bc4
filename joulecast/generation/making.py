"""Write the file of known decoders: `python -m joulecast.generation.making [NAME ...]` (needs torch and transformers).

With names, the decoders of all others stay as they are.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from ..extraction.models.language_models import LANGUAGE_MODELS, Architecture
from ..extraction.models.transformers_models import import_transformers
from .decoder import Attention, Decoder
from .models import FILE, TOP_P, _file, decoder_to_json, extracted_decoder


def made(name: str, row: Architecture) -> Decoder:
    """The parts of a model of the table, from its extracted operations."""
    model_class = getattr(import_transformers(), row.class_name)
    if linear := getattr(sys.modules[model_class.__module__], "FalconLinear", None):
        linear.forward = torch.nn.Linear.forward  # The same product, which Falcon writes out.
    found = extracted_decoder(model_class.config_class(architectures=[row.class_name], **row.sizes), name)
    if "rotary_dim" in row.sizes:  # GPT-J turns its heads by a function of its own.
        turned = ((replace(part, rotary=True) if isinstance(part, Attention) else part, at) for part, at in found.parts)
        found = replace(found, parts=tuple(turned))
    return replace(found, context=row.context, top_p=name.startswith(TOP_P))


def main() -> None:
    """Extract models of the table, or all of them, and write the file."""
    rows = sorted(LANGUAGE_MODELS.items())
    named = sys.argv[1:] or [name for name, _ in rows]
    content = {name: decoder_to_json(made(name, row)) if name in named else _file()[name] for name, row in rows}
    text = json.dumps(content, separators=(",", ":"))
    # Without a time stamp, the same models always give the same bytes.
    Path(__file__).with_name(FILE).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
