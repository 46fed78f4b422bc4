"""Tables as data frames, for notebooks and searches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd


def table_frame(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> pd.DataFrame:
    """A table as a pandas DataFrame, which other libraries of data frames read without a copy; None is missing.

    Args:
        header: Names of the columns.
        rows: Values of each row, in the order of the header.

    Raises:
        MissingDependencyError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError(
            "a data frame needs pandas", hint="pip install pandas; or take to_csv(), which needs nothing"
        ) from None
    return pd.DataFrame([list(row) for row in rows], columns=list(header))
