"""What an extraction depends on, as a digest: networks and templates that were made before are valid while it holds.

It covers how tracing works and what the table of operators says of each operator that the model runs. A row for another
operator changes neither, so what never meets that operator stays valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from .operators import FREE, OPERATORS, REVISIONS

TRACING_VERSION = 3
"""Raise it when models give other operations than before whatever operators they run."""


def digest(operators: Iterable[str]) -> str:
    """Sixteen hexadecimal digits of what extraction makes of these operators.

    Args:
        operators: Namespace and name of each, such as "aten.linear", in any order.
    """
    text = json.dumps([TRACING_VERSION, {operator: _treatment(operator) for operator in sorted(set(operators))}])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _treatment(operator: str) -> str:
    """Whether an operator is converted, and by which revision of its row, costs nothing, or is not in the table."""
    namespace, _, name = operator.partition(".")
    if namespace != "aten":
        return "unknown"
    if name in OPERATORS:
        return f"revision {REVISIONS.get(name, 1)}"
    return "free" if name in FREE else "unknown"
