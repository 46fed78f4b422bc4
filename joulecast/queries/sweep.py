"""Sweep: a job on many GPUs, clocks and precisions, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..arrays import front_of
from ..operations.inputs import InputShape, shape_to_json, titled
from ..predictors.networks.prediction_html import QUANTITIES, quantity_table
from ..predictors.networks.uncovered import INCOMPLETE
from ..rendering.answers import Answer, Table
from ..rendering.notebook import (
    Bar,
    Line,
    Picture,
    as_html,
    as_picture,
    bars,
    checked_path,
    document,
    front_picture,
    lines_over,
    notes,
    one_below_the_other,
    short,
    table,
)
from ..rendering.plots import html_page
from ..units import si
from .choice import Choice, Choices, LeftOut, choices_table, incomplete_notes
from .objectives import OBJECTIVES, Job, Tariff, find_objective


@dataclass(frozen=True, repr=False)
class Sweep(Answer):
    """A job over GPUs, clocks, precisions and batch sizes.

    Args:
        network: Name of the job.
        input_shape: Shape of its input, with the original batch size; None for a list of operations.
        mode: inference or training.
        objective: Name of the objective whose values are in the rows.
        rows: Choices, ordered by GPU, precision, batch size and ascending clock.
        tariff: Prices and carbon intensity used for the rows.
        left_out: GPUs that cannot run it.
    """

    network: str
    input_shape: InputShape | None
    mode: str
    objective: str
    rows: tuple[Choice, ...] = field(repr=False)
    tariff: Tariff
    left_out: tuple[LeftOut, ...] = ()

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        best = f"; least {self.objective}: {self.best()}" if self.rows else ""
        return f"{self.job}: {len(self.rows)} choices{best}"

    @property
    def job(self) -> str:
        """Short description of the job: "resnet50 32 x 3 x 224 x 224, inference"."""
        return f"{titled(self.network, self.input_shape)}, {self.mode}"

    def best(self, objective: str | None = None) -> Choice:
        """The row with the lowest value of an objective; None stands for the sweep's own objective.

        Raises:
            UnknownNameError: There is no such objective.
            InputError: The objective needs prices that were not given.
        """
        name = objective or self.objective
        wanted = find_objective(name, self.tariff, all(row.batch_size is not None for row in self.rows))
        per_sample = len({row.batch_size for row in self.rows}) > 1

        def value(row: Choice) -> float:
            objective_value = wanted.value(
                row.time_s, row.energy_j, Job(row.gpu, row.batch_size, self.tariff, per_sample)
            )
            return float("inf") if objective_value is None else float(objective_value)

        return min(self.rows, key=value)

    def pareto(self) -> tuple[Choice, ...]:
        """The Pareto front, fastest first: rows for which no other needs less energy without needing more time."""
        points = [row.time_s for row in self.rows], [row.energy_j for row in self.rows]
        return tuple(self.rows[place] for place in front_of(*points))

    def curves(self) -> tuple[tuple[Choice, ...], ...]:
        """The rows of each GPU, precision and batch size; the group with the lowest objective comes first."""
        groups: dict[tuple[str, str, int | None], list[Choice]] = {}
        for row in self.rows:
            groups.setdefault((row.gpu, row.precision, row.batch_size), []).append(row)
        return tuple(sorted(map(tuple, groups.values()), key=lambda rows: min(row.value for row in rows)))

    def best_of_each(self) -> tuple[Choice, ...]:
        """The best row of each GPU, precision and batch size by the objective; the best of all comes first."""
        return tuple(min(curve, key=lambda row: row.value) for curve in self.curves())

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain lists and dictionaries; quantities in SI units."""
        return {
            "network": self.network,
            "input_shape": shape_to_json(self.input_shape),
            "mode": self.mode,
            "objective": self.objective,
            "rows": [row.to_dict() for row in self.rows],
            "left_out": [asdict(out) for out in self.left_out],
        }

    def _table(self) -> Table:
        return choices_table(self.rows)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the sweep into a PNG or SVG file, or into an HTML file that also has its tables.

        Returns:
            The path; without a path, a picture that Jupyter shows.

        Raises:
            InputError: The path has another ending, or its folder does not exist.
            MissingDependencyError: matplotlib, which writes PNG, is not installed.
        """
        if path is None or Path(path).suffix.lower() != ".html":
            return super().plot(path)
        path = checked_path(path, [".html"], "a page")
        path.write_text(html_page(self.job, [as_html(self)]), encoding="utf-8")
        return path

    def _picture(self) -> Picture:
        """The Pareto front, and each quantity against the clock."""
        return as_picture(self)


# Choices and sweeps as HTML and pictures for Jupyter.

_LINES, _ROWS = 4, 12


@as_html.register(Choice)
def choice_html(choice: Choice) -> str:
    """A choice as a table of its costs, followed by its warnings."""
    remarks = [f"predicted by {choice.predictor}", *choice.notes]
    if not choice.measured:
        remarks.insert(0, "never measured: predicted from its data sheet alone")
    return document(_title(choice), quantity_table(choice, choice.interval), notes(remarks))


@as_picture.register(Choice)
def choice_plot(choice: Choice) -> Picture:
    """Each quantity with its interval, as shares of its own value."""
    items = []
    for place, (title, name, unit) in enumerate(QUANTITIES):
        value = getattr(choice, name)
        low_high = getattr(choice.interval, name) if choice.interval else None
        shares = (low_high[0] / value, low_high[1] / value) if low_high else None
        items.append(Bar(title, 1.0, si(value, unit), shares, place))
    return Picture(bars(items, _title(choice)))


@as_html.register(Choices)
def choices_html(choices: Choices) -> str:
    """A table of each GPU at its best clock, best first, and of the GPUs that were excluded."""
    if not choices:
        return document("no choice", notes(left_out_notes(choices.left_out)))
    words, unit = _objective(choices)
    # Time and energy have columns of their own.
    has_value = words not in ("time", "energy")
    rows = [
        [
            row.alias,
            f"{row.clock_mhz:g}",
            row.precision,
            "" if row.batch_size is None else str(row.batch_size),
            *([si(row.value, unit)] if has_value else []),
            si(row.time_s, "s"),
            si(row.power_w, "W"),
            si(row.energy_j, "J"),
            ", ".join(_said_of(row)),
        ]
        for row in choices[:_ROWS]
    ]
    remarks = [f"and {len(choices) - _ROWS} more"] if len(choices) > _ROWS else []
    header = ["GPU", "clock MHz", "precision", "batch", *([words] if has_value else []), "time", "power", "energy", ""]
    return document(
        f"{choices[0].mode}, least {words} first",
        table(header, rows, frozenset({1, *range(3, len(header) - 1)})),
        notes([*incomplete_notes(choices), *remarks, *left_out_notes(choices.left_out)]),
    )


def _said_of(choice: Choice) -> Iterator[str]:
    if choice.tied:
        yield "tied"
    if not choice.measured:
        yield "never measured"
    if choice.uncovered:
        yield f"{INCOMPLETE}: {choice.uncovered_text} not covered"


@as_picture.register(Choices)
def choices_plot(choices: Choices) -> Picture:
    """Plot the objective of each choice with its interval, where it has one. Measured GPUs have their own colour."""
    words, unit = _objective(choices) if choices else ("", "")
    items = []
    for choice in choices[:_ROWS]:
        whiskers = None
        if choice.interval is not None and (whole := _WHOLE.get(choice.objective)):
            # A value per sample has the same relative interval as the value per iteration.
            scale = choice.value / getattr(choice, whole)
            low, high = getattr(choice.interval, whole)
            whiskers = (scale * low, scale * high)
        name = f"{_name(choice)}, {choice.clock_mhz:g} MHz"
        remarks = si(choice.value, unit) + ("" if choice.measured else ", never measured")
        items.append(Bar(short(name), choice.value, remarks, whiskers, int(choice.measured)))
    return Picture(bars(items, f"Least {words} first"))


def _objective(choices: Choices) -> tuple[str, str]:
    """The objective of the choices in words, and its unit."""
    objective = OBJECTIVES[choices[0].objective]
    per_sample = len({choice.batch_size for choice in choices}) > 1 and not objective.words.endswith("per sample")
    return objective.words + (" per sample" if per_sample else ""), objective.unit


_WHOLE = {
    "energy": "energy_j",
    "energy_per_sample": "energy_j",
    "time": "time_s",
    "time_per_sample": "time_s",
    "edp": "edp_js",
}
"""Objective -> name of the quantity of a choice and its interval that it equals or is proportional to."""


def left_out_notes(left_out: Sequence[LeftOut]) -> list[str]:
    """The GPUs that were excluded: one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for out in left_out:
        by_reason.setdefault(out.reason, []).append(out.gpu)
    return [f"left out: {', '.join(dict.fromkeys(gpus))}: {reason}" for reason, gpus in by_reason.items()]


@as_html.register(Sweep)
def sweep_html(sweep: Sweep) -> str:
    """Pictures of the sweep, and tables of each GPU at its best clock and of the Pareto front."""
    best = sweep.best_of_each()
    remarks = [f"and {len(best) - _ROWS} more"] if len(best) > _ROWS else []
    measured = [note for row in best if row.measured for note in row.notes]
    remarks += dict.fromkeys([*incomplete_notes(sweep), *measured, *left_out_notes(sweep.left_out)])
    return document(
        f"{sweep.job}: least {OBJECTIVES[sweep.objective].words}",
        as_picture(sweep).svg,
        _rows_of(best[:_ROWS], sweep.objective),
        notes(["the Pareto front of time and energy:"]),
        _rows_of(sweep.pareto()[:_ROWS], sweep.objective),
        notes(remarks),
    )


def _rows_of(rows: Sequence[Choice], objective: str) -> str:
    extra = objective not in ("energy", "time", "edp")
    header = ["GPU", "clock MHz", "precision", "time", "power", "energy", "EDP"]
    header += [OBJECTIVES[objective].words] if extra else []
    cells = (
        [
            row.alias,
            f"{row.clock_mhz:g}",
            row.precision + ("" if row.batch_size is None else f", batch {row.batch_size}"),
            *(si(value, unit) for value, unit in zip((row.time_s, row.power_w, row.energy_j), "sWJ", strict=True)),
            si(row.edp_js, "Js"),
            *([OBJECTIVES[objective].text(row.value)] if extra else []),
            "" if row.measured else "never measured",
        ]
        for row in rows
    )
    return table([*header, ""], cells, frozenset({1, *range(3, len(header))}))


@as_picture.register(Sweep)
def sweep_picture(sweep: Sweep) -> Picture:
    """The Pareto front, and energy, time and energy-delay product over the clock of the best GPUs."""
    curves = sweep.curves()[:_LINES]
    dots, front = ([(row.time_s, row.energy_j) for row in rows] for rows in (sweep.rows, sweep.pareto()))
    drawn = [front_picture(("all choices", dots), front, "time", f"Energy and time: {sweep.job}").svg]
    for name, quantity, unit in (("energy", "energy_j", "J"), ("time", "time_s", "s"), ("EDP", "edp_js", "Js")):
        lines = []
        for curve in curves:
            points = [(row.clock_mhz, float(getattr(row, quantity))) for row in curve]
            lines.append(Line(_name(curve[0]), points, min(range(len(points)), key=lambda at, of=points: of[at][1])))  # type: ignore[misc]
        drawn.append(lines_over(lines, ("clock", "MHz"), (name, unit), f"{name[0].upper()}{name[1:]} over the clock"))
    return one_below_the_other(drawn)


def _name(choice: Choice) -> str:
    batch = "" if choice.batch_size is None else f", batch {choice.batch_size}"
    precision = "" if choice.precision == "default" else f", {choice.precision}"
    return f"{choice.alias}{precision}{batch}"


def _title(choice: Choice) -> str:
    return f"{_name(choice)}, {choice.mode}, at {choice.clock_mhz:g} MHz"
