"""Ways to serve a model, and what each costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ..rendering.answers import Plain
from ..rendering.tables import Table, Tabular, table_csv
from ..units import si


@dataclass(frozen=True)
class GenerationChoice(Plain):
    """One way to serve a model.

    Args:
        gpu: Full name of each GPU.
        gpus: Number of GPUs, which share each layer.
        precision: What the weights are in.
        batch: Sequences at a time.
        clock_mhz: Graphics clock that is set.
        time_to_first_token_s, time_per_output_token_s: Seconds of a request.
        tokens_per_s: Tokens that are written for all requests together per second.
        power_w: Mean power of all boards together.
        energy_per_token_j: Joules per token that is written.
        value: Value of the objective, the lower the better.
        cost_per_million_tokens: In the currency of the prices; None without prices.
        carbon_g_per_million_tokens: Grams of CO2 equivalent; None without a carbon intensity.
    """

    gpu: str
    gpus: int
    precision: str
    batch: int
    clock_mhz: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    tokens_per_s: float
    power_w: float
    energy_per_token_j: float
    value: float
    cost_per_million_tokens: float | None = None
    carbon_g_per_million_tokens: float | None = None

    @property
    def boards(self) -> str:
        """The GPUs with their number."""
        return f"{self.gpus}x {self.gpu}" if self.gpus > 1 else self.gpu

    def __str__(self) -> str:
        return (
            f"{self.boards} at {self.clock_mhz:g} MHz, {self.precision}, batch {self.batch}: "
            f"{si(self.energy_per_token_j, 'J')} and {si(self.time_per_output_token_s, 's')} per token, "
            f"first after {si(self.time_to_first_token_s, 's')}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The choice as a dictionary; quantities in SI units."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class GenerationChoices(tuple[GenerationChoice, ...], Tabular, Plain):
    """The best way of each GPU and number of GPUs, best first.

    Attributes:
        rows: All ways that keep the limits.
        left_out: GPU -> why it is not among the choices.
    """

    rows: tuple[GenerationChoice, ...]
    left_out: dict[str, str]

    def __new__(cls, rows: Iterable[GenerationChoice], left_out: dict[str, str]) -> GenerationChoices:
        """Choose from rows.

        Args:
            rows: All ways that keep the limits.
            left_out: GPU -> why it is not among them.
        """
        listed = tuple(rows)
        best: dict[str, GenerationChoice] = {}
        for row in listed:
            known = best.get(row.boards)
            if known is None or row.value < known.value:
                best[row.boards] = row
        made = super().__new__(cls, sorted(best.values(), key=lambda row: row.value))
        made.rows, made.left_out = listed, left_out
        return made

    def pareto(self) -> tuple[GenerationChoice, ...]:
        """The Pareto front, fastest first: rows than which none needs fewer joules without more time, per token."""
        front: list[GenerationChoice] = []
        for row in sorted(self.rows, key=lambda row: (row.time_per_output_token_s, row.energy_per_token_j)):
            if not front or row.energy_per_token_j < front[-1].energy_per_token_j:
                front.append(row)
        return tuple(front)

    def _table(self) -> Table:
        return _table_of(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """The choices as plain lists and dictionaries."""
        return {
            "choices": [choice.to_dict() for choice in self],
            "pareto": [choice.to_dict() for choice in self.pareto()],
            "left_out": dict(self.left_out),
        }


def rows_csv(rows: Iterable[GenerationChoice]) -> str:
    """Ways to serve a model as CSV, in the order given."""
    return table_csv(*_table_of(rows))


def _table_of(rows: Iterable[GenerationChoice]) -> Table:
    names = [field.name for field in fields(GenerationChoice)]
    return Table(names, ([getattr(row, name) for name in names] for row in rows))
