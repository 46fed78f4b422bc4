"""Ways to serve a language model, with the time, energy and price of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ..rendering.answers import Answer, Plain, Table, table_csv
from ..rendering.notebook import Picture, front_picture
from ..units import si
from .parallel import Parallel


@dataclass(frozen=True)
class GenerationChoice(Plain):
    """One way to serve a model.

    Args:
        gpu: Full name of the GPU model; all GPUs are alike.
        gpus: Number of GPUs.
        tensor_parallel: Number of GPUs that share each layer.
        expert_parallel: Number of GPUs over which whole experts are distributed. Above tensor_parallel, each of them
            has all other layers and sequences of its own.
        replicas: Number of copies of the model, which share the batch.
        precision: Precision of the weights.
        batch: Number of sequences that run at a time, on all GPUs together.
        clock_mhz: Graphics clock of the GPUs in MHz.
        time_to_first_token_s: Seconds from the start of a request to its first token.
        time_per_output_token_s: Mean seconds from one token of a request to the next.
        latency_s: Seconds from the start of a request to its last token.
        tokens_per_s: Output tokens per second, of all requests together.
        power_w: Mean power of all boards together in watts.
        energy_per_token_j: Joules of all boards per output token.
        value: Value of the objective; lower is better.
        cost_per_million_tokens: Price of a million output tokens, in the currency of the prices; None without prices.
        carbon_g_per_million_tokens: Grams of CO2 equivalent for a million output tokens; None without a carbon
            intensity.
    """

    gpu: str
    gpus: int
    tensor_parallel: int
    expert_parallel: int
    replicas: int
    precision: str
    batch: int
    clock_mhz: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    latency_s: float
    tokens_per_s: float
    power_w: float
    energy_per_token_j: float
    value: float
    cost_per_million_tokens: float | None = None
    carbon_g_per_million_tokens: float | None = None

    @property
    def boards(self) -> str:
        """The GPUs with their number, such as "2x NVIDIA H200"."""
        return f"{self.gpus}x {self.gpu}" if self.gpus > 1 else self.gpu

    @property
    def layout(self) -> str:
        """How the GPUs share the model, such as "TP 4, 2 replicas"."""
        return str(Parallel(self.tensor_parallel, self.expert_parallel, self.replicas))

    def __str__(self) -> str:
        layout = f" ({self.layout})" if self.gpus > 1 else ""
        return (
            f"{self.boards}{layout} at {self.clock_mhz:g} MHz, {self.precision}, batch {self.batch}: "
            f"{si(self.energy_per_token_j, 'J')} and {si(self.time_per_output_token_s, 's')} per token, "
            f"first after {si(self.time_to_first_token_s, 's')}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The choice as a dictionary; quantities in SI units."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "layout": self.layout}


class GenerationChoices(Answer, tuple[GenerationChoice, ...]):
    """The best way of each GPU and number of GPUs, best first.

    Attributes:
        rows: All ways within the limits.
        left_out: GPU -> the reason why it is not among the choices.
    """

    rows: tuple[GenerationChoice, ...]
    left_out: dict[str, str]

    def __new__(cls, rows: Iterable[GenerationChoice], left_out: dict[str, str]) -> GenerationChoices:
        """Choose the best of the rows for each GPU and number of GPUs.

        Args:
            rows: All ways within the limits.
            left_out: GPU -> the reason why it is not among them.
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
        """The Pareto front, fastest first: rows for which no other is both faster and needs less energy per token."""
        front: list[GenerationChoice] = []
        for row in sorted(self.rows, key=lambda row: (row.time_per_output_token_s, row.energy_per_token_j)):
            if not front or row.energy_per_token_j < front[-1].energy_per_token_j:
                front.append(row)
        return tuple(front)

    def __str__(self) -> str:
        least = f"; best: {self[0]}" if self else ""
        return f"{len(self)} ways to serve a language model, {len(self.left_out)} left out{least}"

    def _table(self) -> Table:
        return _table_of(self.rows)

    def _picture(self) -> Picture:
        """All ways as dots, and the Pareto front as a line."""
        front = [(row.time_per_output_token_s, row.energy_per_token_j) for row in self.pareto()]
        dots = [(row.time_per_output_token_s, row.energy_per_token_j) for row in self.rows]
        return front_picture(("all ways", dots), front, "time per token", f"{len(dots)} ways to serve a language model")

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
