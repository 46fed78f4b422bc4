"""What all answers have in common: they turn into plain dictionaries and JSON, and into a picture."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

from .notebook import Picture, as_html
from .tables import Tabular


class Plain(ABC):
    """An answer that turns into dictionaries of texts, numbers and lists."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The answer as plain lists and dictionaries; quantities in SI units."""

    def to_json(self, *, indent: int | None = None) -> str:
        """What `to_dict` returns, as JSON. Numbers that are not finite become null.

        Args:
            indent: Spaces by which each level is indented; None for one line.
        """
        return json.dumps(finite(self.to_dict()), indent=indent, allow_nan=False)


class Drawn(ABC):
    """An answer that can be drawn."""

    @abstractmethod
    def _picture(self) -> Picture: ...

    @overload
    def plot(self, path: str | Path) -> Path: ...
    @overload
    def plot(self, path: None = None) -> Picture: ...
    def plot(self, path: str | Path | None = None) -> Path | Picture:
        """Draw the answer.

        Args:
            path: An SVG, PNG or HTML file to write; None to write none.

        Returns:
            The path; without a path, a picture that Jupyter shows and `save` writes.

        Raises:
            InputError: There is nothing to draw, or the path has another ending or is in no folder.
            MissingDependencyError: matplotlib, which writes PNG, is not installed.
        """
        picture = self._picture()
        return picture if path is None else picture.save(path)


class Answer(Plain, Tabular, Drawn):
    """An answer with all forms: a line of text, dictionaries, tables and a picture; in Jupyter all of them."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        return as_html(self)


def finite(value: Any) -> Any:
    """A value of lists and dictionaries with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
