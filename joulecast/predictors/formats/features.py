"""Checks that a stored predictor was trained with the features that this version computes."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ZooError

_MOST_TEXT = 200


def require_features(found: object, known: Sequence[str], of: object) -> None:
    """Require that the names of a stored predictor's features are those that this version computes, in their order.

    Args:
        found: The names in the file, which may be anything.
        known: The names of the features that this version computes.
        of: Folder or name of what was stored, for the message.

    Raises:
        ZooError: They are not.
    """
    if found != list(known):
        raise ZooError(
            "this zoo entry was trained with other features than this version computes",
            given=f"{of}: {str(found)[:_MOST_TEXT]}",
            allowed=f"{len(known)} features: {', '.join(known)[:_MOST_TEXT]}",
            hint="train it again",
        )
