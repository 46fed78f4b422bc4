"""Files that entries of every form have: the card, the card as a text for people, and facts of the predictor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..rendering import markdown
from .files import json_bytes, parsed_json

CARD, README = "card.json", "README.md"
"""Names of the files that hold the card, for programs and for people."""

_FACTS = "predictor.json"

NEEDED: tuple[str, ...] = (CARD, _FACTS)
"""The files without which no entry can be loaded."""


def common_files(card: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, bytes]:
    """The common files of an entry, to be stored.

    Args:
        card: Card of the entry, as a dictionary.
        facts: What the predictor needs besides its arrays, as JSON can hold it.

    Returns:
        File name -> content.
    """
    return {**card_files(card), _FACTS: json_bytes(facts)}


def card_files(card: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a card, given as a dictionary: file name -> content."""
    return {CARD: json_bytes(card), README: markdown(card).encode()}


def read_card(files: Mapping[str, bytes]) -> Any:
    """Parse the card of an entry.

    Raises:
        ZooError: The file is not JSON.
    """
    return parsed_json(files[CARD], "the card of this zoo entry")


def read_facts(files: Mapping[str, bytes]) -> Any:
    """Parse the facts of an entry's predictor, as they were given to `common_files`.

    Raises:
        ZooError: The file is not JSON.
    """
    return parsed_json(files[_FACTS], "the predictor of this zoo entry")
