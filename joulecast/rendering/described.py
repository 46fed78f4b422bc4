"""What an answer says, written once: a title, tables, sentences and notes, which are shown as text and as HTML.

HTML has no scripts, style sheets or external resources, so that notebooks show it even where not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, NamedTuple

from ..units import NOT_MEASURED, duration, number, si

LEVEL = 0.9
"""Level of the intervals that answers show."""

FONT = "font-family:system-ui,sans-serif;font-size:13px"
_QUIET = "opacity:.7;margin:2px 0"


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Args:
        header: Titles of the columns.
        rows: Cells of each row.
        numbers: Indices of the columns that are right-aligned.
        beneath: Lines below the table, such as "and 3 more".
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Collection[int] = ()
    beneath: Sequence[str] = ()

    def __str__(self) -> str:
        """As text, with columns as wide as their longest cell."""
        widths = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]
        lines = []
        for row in [self.header, ["-" * width for width in widths], *self.rows]:
            cells = [
                cell.rjust(width) if i in self.numbers else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self.beneath])

    def to_html(self) -> str:
        """As HTML."""

        def cells(tag: str, texts: Sequence[str]) -> str:
            sides = ("right" if i in self.numbers else "left" for i in range(len(texts)))
            return "".join(
                f'<{tag} style="text-align:{side};padding:2px 12px 2px 0;white-space:pre-wrap">{escape(text)}</{tag}>'
                for side, text in zip(sides, texts, strict=True)
            )

        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        listed = f"<table><thead><tr>{cells('th', self.header)}</tr></thead><tbody>{body}</tbody></table>"
        return listed + _paragraphs(self.beneath)


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f'<p style="{_QUIET}">{escape(text)}</p>' for text in texts)


@dataclass(frozen=True)
class Description:
    """What an answer says.

    Args:
        title: What was asked, in a line; further lines are not emphasized.
        parts: Tables and sentences in their order.
        notes: What should be known about the answer.
    """

    title: str
    parts: Sequence[Grid | str] = ()
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        """As a terminal shows it."""
        notes = "\n".join(f"note: {note}" for note in self.notes)
        return "\n\n".join(filter(None, [self.title, *map(str, self.parts), notes]))

    def to_html(self, picture: str = "", after: int = 0) -> str:
        """As Jupyter shows it.

        Args:
            picture: A drawing as SVG.
            after: Number of parts that come before the drawing.
        """
        shown = [each.to_html() if isinstance(each, Grid) else _paragraphs(each.splitlines()) for each in self.parts]
        shown.insert(after, picture)
        first, *further = self.title.splitlines()
        headline = f"<p><strong>{escape(first)}</strong></p>{_paragraphs(further)}"
        return f'<div style="{FONT};max-width:60rem">{headline}{"".join(shown)}{_paragraphs(self.notes)}</div>'


# Tables of quantities, and of values that are alike.

Unit = str | Callable[[Any], str]
"""Unit of a quantity, or a function that writes it."""


def _written(unit: Unit) -> Callable[[Any], str]:
    return unit if callable(unit) else partial(si, unit=unit)


def totals(value: Any, interval: Any, quantities: Iterable[tuple[str, str, Unit]], title: str = "") -> Grid:
    """Quantities with their intervals; those that are not known are left out, but energy.

    Args:
        value: What has the quantities as attributes.
        interval: What has low and high of each; None without intervals.
        quantities: Title of each, the attribute, and its unit.
        title: Title of the first column.
    """
    rows = []
    for what, name, unit in quantities:
        found, low_high, text = getattr(value, name), getattr(interval, name, None), _written(unit)
        if found is None and name == "energy_j":
            rows.append([what, NOT_MEASURED, ""])
        elif found is not None:
            rows.append([what, text(found), f"{text(low_high[0])} to {text(low_high[1])}" if low_high else ""])
    return Grid([title, "predicted", f"{100 * LEVEL:.0f} % interval" if interval else ""], rows, {1})


class Column(NamedTuple):
    """A column of a table of values that are alike.

    Args:
        title: Text in the header.
        text: Function from a value to its cell; None where it has none. A column in which no value has one is left out.
        right: Whether cells are right-aligned.
        shown: Whether the table has the column.
    """

    title: str
    text: Callable[[Any], str | None]
    right: bool = True
    shown: bool = True


def quantity(title: str, field: str, unit: Unit) -> Column:
    """A column with a field of each value in its unit, or as a function writes it, where it is known."""
    written = _written(unit)
    return Column(title, lambda row: None if (value := getattr(row, field)) is None else written(value))


def word(title: str, field: str, shown: bool = True) -> Column:
    """A left-aligned column with a field of each value as text."""
    return Column(title, lambda row: str(getattr(row, field)), right=False, shown=shown)


def listing(rows: Sequence[Any], columns: Sequence[Column], top: int = 0, beneath: Sequence[str] = ()) -> Grid:
    """A table of the first rows, all for 0, with how many more there are, and further lines beneath."""
    some = rows[: top or None]
    cells = [(column, [column.text(row) for row in some]) for column in columns if column.shown]
    kept = [(column, texts) for column, texts in cells if any(text is not None for text in texts)]
    lines = [["-" if texts[at] is None else str(texts[at]) for _, texts in kept] for at in range(len(some))]
    right = {place for place, (column, _) in enumerate(kept) if column.right}
    more = [f"and {len(rows) - len(some)} more"] if len(rows) > len(some) else []
    return Grid([column.title for column, _ in kept], lines, right, [*more, *beneath])


# Columns of tables as data frames have them, whose names say their units.

_UNITS = {"_per_s": " a second", "_js": "Js", "_s": "s", "_j": "J", "_w": "W", "_bytes": "B", "_mhz": " MHz"}
"""End of a column's name -> the unit of its values."""


def quantity_name(column: str) -> str:
    """The name of a column without its unit: "time_s" is "time"."""
    end = next((end for end in _UNITS if column.endswith(end)), "")
    return column.removesuffix(end).replace("_", " ")


def quantity_text(column: str, value: object) -> str:
    """A value of a column as text, with the unit that the column's name says."""
    if value is None or (isinstance(value, float) and value != value):
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    unit = next((unit for end, unit in _UNITS.items() if column.endswith(end)), None)
    if unit in (None, " a second"):
        return f"{number(value)}{unit or ''}"
    return duration(value) if unit == "s" else f"{value:g} MHz" if unit == " MHz" else si(value, unit)


def first_rows(header: Sequence[str], rows: Iterable[Iterable[Any]], most: int = 12) -> Grid:
    """The first rows of a table, as texts."""
    listed = list(rows)
    numbers = {place for place, name in enumerate(header) if name.endswith(tuple(_UNITS))}
    shown = [[*map(quantity_text, header, row)] for row in listed[:most]]
    more = [f"and {len(listed) - most} more rows; to_frame() has them all"] if len(listed) > most else []
    return Grid([*map(quantity_name, header)], shown, numbers, more)
