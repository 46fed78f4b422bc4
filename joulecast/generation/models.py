"""Whatever users call a language model, as the parts that engines fuse it to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..extraction import network_of
from ..operations.network import Network
from .decoder import Decoder
from .fusing import decoder_of
from .known import known_decoder

if TYPE_CHECKING:
    from ..extraction.sources import Model

# Tokens of the past: long enough for windows to show, as far as a model has positions.
_PASTS = (8191, 2047, 1023, 511)


def find_decoder(model: Model) -> Decoder:
    """The parts of a language model.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.

    Raises:
        InputError: It writes no text, or its sizes cannot be known.
        UnknownNameError, ExtractionError, MissingDependencyError: See `joulecast.extract`.
    """
    if isinstance(model, Network | list | tuple):
        raise InputError(
            "operations of one shape do not say what other steps of a model are",
            given=type(model).__name__,
            allowed="a name, a configuration, the path of a config.json, or a module",
        )
    known = known_decoder(model) if isinstance(model, str) else None
    return extracted_decoder(model) if known is None else known


def extracted_decoder(model: Model, name: str | None = None) -> Decoder:
    """The parts of a language model from its operations.

    Args:
        model: A name, a configuration of transformers, the path of its config.json, or a module.
        name: What to call it; None for what extraction calls it.

    Raises:
        InputError, UnknownNameError, ExtractionError, MissingDependencyError: See `find_decoder`.
    """
    for past in _PASTS:
        try:
            network = network_of(model, (1, 1), precision="bf16", cache_length=past, assume={"experts": "uniform"})
        except InputError as error:
            if "positions" not in error.what or past == _PASTS[-1]:
                raise
            continue
        break
    found = decoder_of(network, past)
    return replace(found, name=name or network.name.partition(" after ")[0], tied=_is_tied(model))


def _is_tied(model: Any) -> bool:
    """Whether words go in and come out by one table, as far as a configuration says it."""
    path = Path(model) if isinstance(model, str | Path) else None
    if path is not None and path.suffix == ".json":
        content = json.loads(path.read_text())
        return isinstance(content, Mapping) and bool(content.get("tie_word_embeddings"))
    config = getattr(model, "config", model)
    return bool(getattr(config, "tie_word_embeddings", False))
