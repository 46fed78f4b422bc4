"""Tables as CSV, for programs: every digit of a number, nothing where a value is not known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any


def table_csv(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows)
    return text.getvalue()
