"""The style of plots, and access to matplotlib where it is installed."""

from __future__ import annotations

from typing import Any

from ..errors import MissingDependencyError

INK, FAINT, ACCENT, OTHER = "#222222", "#999999", "#1b6ca8", "#d1793b"
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "figure.dpi": 120}


def pyplot() -> Any:
    """The module matplotlib.pyplot, drawing into files.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingDependencyError("plots need matplotlib", hint="pip install 'joulecast[train]'") from error
    return plt
