"""Sweep: a job on many GPUs, clocks and precisions, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..arrays import front_of
from ..operations.inputs import InputShape, shape_to_json, titled
from ..rendering.answers import Answer, Table
from ..rendering.described import Column, Description, listing, word
from ..rendering.pictures import Line, Picture, front_picture, lines_over, one_below_the_other
from .choice import COSTS, Choice, LeftOut, choices_table, incomplete_notes, left_out_lines
from .objectives import OBJECTIVES, Tariff, find_objective

_LINES = 4  # Curves in a picture.
_SHOWN = 12  # Rows of the Pareto front in a notebook.


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
        per_sample = wanted.per_sample or len({row.batch_size for row in self.rows}) > 1

        def value(row: Choice) -> float:
            samples = row.batch_size if per_sample else None
            found = wanted.value(row.time_s, row.energy_j, samples, self.tariff, row.gpu)
            return float("inf") if found is None else float(found)

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

    def described(self, every: bool = False) -> Description:
        """What a terminal and a notebook show: GPUs at their best clocks, and which of these are on the Pareto front.

        Args:
            every: Whether to show every clock; those of a single GPU always are.
        """
        rows = self.rows if every or len(self.curves()) == 1 else self.best_of_each()
        rest = len(self) - len(rows)
        more = [f"the best clock of each; --all and to_frame() have {rest} more rows"] if rest else []
        beneath = [*more, *incomplete_notes(self), *left_out_lines(self.left_out)]
        title = f"{self.job}, per iteration: least {OBJECTIVES[self.objective].words}"
        return Description(title, [listing(rows, self._columns(), beneath=beneath)])

    def _columns(self) -> list[Column]:
        best, front = self.best(), set(map(id, self.pareto()))
        return [
            word("GPU", "alias"),
            word("precision", "precision"),
            Column("batch", lambda row: "-" if row.batch_size is None else str(row.batch_size)),
            *COSTS,
            Column("", lambda row: "best" if row is best else "front" if id(row) in front else "", right=False),
        ]

    def _page(self, picture: str) -> str:
        """With the whole Pareto front, and what is to be said of measured GPUs."""
        said = self.described()
        front = listing(self.pareto(), self._columns(), _SHOWN)
        notes = dict.fromkeys(note for row in self.best_of_each() if row.measured for note in row.notes)
        parts = [*said.parts, "the Pareto front of time and energy:", front]
        return Description(said.title, parts, [*notes]).to_html(picture)

    def _picture(self) -> Picture:
        """The Pareto front, and energy, time and energy-delay product over the clock of the best GPUs."""
        dots, front = ([(row.time_s, row.energy_j) for row in rows] for rows in (self.rows, self.pareto()))
        drawn = [front_picture(("all choices", dots), front, "time", f"Energy and time: {self.job}").svg]
        for name, quantity, unit in (("energy", "energy_j", "J"), ("time", "time_s", "s"), ("EDP", "edp_js", "Js")):
            lines = []
            for curve in self.curves()[:_LINES]:
                points = [(row.clock_mhz, float(getattr(row, quantity))) for row in curve]
                values = [value for _, value in points]
                lines.append(Line(curve[0].name, points, values.index(min(values))))
            title = f"{name[0].upper()}{name[1:]} over the clock"
            drawn.append(lines_over(lines, ("clock", "MHz"), (name, unit), title))
        return one_below_the_other(drawn)
