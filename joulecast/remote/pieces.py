"""Many networks in several requests, as services limit the size of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_MOST_BYTES = 2_000_000  # half of what a service takes by default
_MOST_NETWORKS = 1_000


def pieces(networks: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Divide networks into lists that fit into a request each; at least one list, which may be empty.

    Args:
        networks: Networks as a service takes them; read once, and not stored.
    """
    piece: list[dict[str, Any]] = []
    size_bytes = 0
    for network in networks:
        added_bytes = len(json.dumps(network))
        if piece and (size_bytes + added_bytes > _MOST_BYTES or len(piece) == _MOST_NETWORKS):
            yield piece
            piece, size_bytes = [], 0
        piece.append(network)
        size_bytes += added_bytes
    yield piece
