"""Digest of everything that extraction depends on. Stored networks and templates are valid as long as it is the same.

It covers the version of tracing and how the table of operators treats each operator that a model runs. A new row for
another operator does not change it, so networks without that operator stay valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from .operators import FREE, OPERATORS, REVISIONS

TRACING_VERSION = 3
"""Increase it when a change in tracing gives other operations than before, independent of the table of operators."""


def digest(operators: Iterable[str]) -> str:
    """Sixteen hexadecimal digits that identify how extraction treats these operators.

    Args:
        operators: Namespace and name of each, such as "aten.linear", in any order.
    """
    text = json.dumps([TRACING_VERSION, {operator: _treatment(operator) for operator in sorted(set(operators))}])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _treatment(operator: str) -> str:
    """How an operator is treated: by which revision of its row, as free of cost, or as unknown."""
    namespace, _, name = operator.partition(".")
    row = name if namespace == "aten" else operator
    if row in OPERATORS:
        return f"revision {REVISIONS.get(row, 1)}"
    return "free" if row in FREE else "unknown"
