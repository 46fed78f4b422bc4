"""Write the file of known decoders, or NAMEs anew: `python -m joulecast.generation.making [NAME ...]` (needs torch)."""

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
from .known import FILE, TOP_P, context_of, decoder_to_json
from .models import extracted_decoder


def made(name: str, row: Architecture) -> Decoder:
    """The parts of a model of the table, from its extracted operations."""
    model_class = getattr(import_transformers(), row.class_name)
    if linear := getattr(sys.modules[model_class.__module__], "FalconLinear", None):
        linear.forward = torch.nn.Linear.forward  # The same product, which Falcon writes out.
    found = extracted_decoder(model_class.config_class(architectures=[row.class_name], **row.sizes), name)
    if "rotary_dim" in row.sizes:  # GPT-J turns its heads by a function of its own.
        turned = ((replace(part, rotary=True) if isinstance(part, Attention) else part, at) for part, at in found.parts)
        found = replace(found, parts=tuple(turned))
    return replace(found, context=context_of(name), top_p=name.startswith(TOP_P))


def main() -> None:
    """Extract every model of the table, or only those that are named, and write the file."""
    path, names = Path(__file__).with_name(FILE), sys.argv[1:]
    known = json.loads(gzip.decompress(path.read_bytes())) if names else {}
    made_now = {name: decoder_to_json(made(name, LANGUAGE_MODELS[name])) for name in names or LANGUAGE_MODELS}
    text = json.dumps(dict(sorted((known | made_now).items())), separators=(",", ":"))
    # Without a time stamp, the same models always give the same bytes.
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
