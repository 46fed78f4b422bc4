"""Finding the parts of a language model, however it is given: by name, configuration, config.json or module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..extraction import network_of
from ..operations.network import Network
from ..regular_files import MOST_JSON_BYTES, read_json
from .decoder import Decoder
from .fusing import decoder_of
from .known import known_decoder

if TYPE_CHECKING:
    from ..extraction.sources import Model

# Lengths of the past to try, longest first: long enough to show sliding windows, if the model has so many positions.
_PASTS = (8191, 2047, 1023, 511)


def find_decoder(model: Model) -> Decoder:
    """The parts of a language model.

    Args:
        model: Name of a language model, a configuration of transformers, the path of its config.json, or its module.

    Raises:
        InputError: The model does not generate text, or it was given in a form that does not say all its sizes.
        UnknownNameError, ExtractionError, MissingDependencyError: See `joulecast.extract`.
    """
    if isinstance(model, Network | list | tuple):
        raise InputError(
            "the operations of a model in one shape are not enough to predict all steps of generation",
            given=type(model).__name__,
            allowed="a name, a configuration, the path of a config.json, or a module",
        )
    known = known_decoder(model) if isinstance(model, str) else None
    return extracted_decoder(model) if known is None else known


def extracted_decoder(model: Model, name: str | None = None) -> Decoder:
    """The parts of a language model from its operations.

    Args:
        model: A name, a configuration of transformers, the path of its config.json, or a module.
        name: Name of the result; None for the name that extraction gives it.

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
    """Whether the configuration says that the embedding and the language-model head share their weights."""
    path = Path(model) if isinstance(model, str | Path) else None
    if path is not None and path.suffix == ".json":
        content = read_json(path, MOST_JSON_BYTES, "this configuration")
        return isinstance(content, Mapping) and bool(content.get("tie_word_embeddings"))
    config = getattr(model, "config", model)
    return bool(getattr(config, "tie_word_embeddings", False))
