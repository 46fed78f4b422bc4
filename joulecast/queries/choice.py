"""Choice: one GPU at one clock in one precision for one job, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..predictors.intervals.network_calibration import Interval
from ..predictors.networks.uncovered import INCOMPLETE, percent
from ..rendering.answers import Answer, Drawn, Plain, Table
from ..rendering.notebook import Picture, as_html, as_picture
from ..units import si

LEVEL = 0.9
"""Level of the intervals of choices."""

_COLUMNS = (
    "gpu clock_mhz held_clock_mhz power_limit_w precision mode batch_size time_s power_w energy_j edp_js ed2p_js2 "
    "time_per_sample_s energy_per_sample_j cost carbon_g memory_bytes predictor measured uncovered_share"
)


@dataclass(frozen=True)
class Choice(Plain, Drawn):
    """One way to run a job, per iteration.

    Args:
        gpu: Full name of the GPU.
        alias: Short name of the GPU.
        clock_mhz: Graphics clock that is set.
        default_clock_mhz: Default graphics clock of the GPU.
        held_clock_mhz: Clock that the GPU holds on average; below `clock_mhz` where its power cap makes it slow down.
        power_limit_w: Power cap.
        precision: Requested precision: "default", fp32, tf32, fp16 or bf16.
        mode: inference or training.
        batch_size: Samples per iteration; None where the input has no batch dimension.
        time_s, energy_j: Seconds and joules per iteration.
        interval: 90 % interval; None where no errors are known for such predictions.
        objective: Name of the objective that choices were compared by.
        value: Value of the objective, the lower the better; per sample where batch sizes are compared. Its unit is in
            `OBJECTIVES`.
        tied: Whether a choice of another GPU, precision or batch size cannot be told from the best one: its value lies
            within the interval of the best. Where the best has no interval, whether the best lies within this one's.
        memory_bytes: Device memory that the job needs, estimated.
        predictor: Name of the zoo entry that predicted it.
        measured: Whether anything was measured on this GPU. If not, the prediction rests on its data sheet alone.
        cost: Price of an iteration in the currency of the prices; None without prices.
        carbon_g: Grams of CO2 equivalent of an iteration; None without a carbon intensity.
        notes: Warnings about the prediction.
        uncovered: Operations and operators of the job that the totals do not include, in words.
        uncovered_share: Their share of the job's FLOPs or bytes, whichever is larger; None where it is not known.
    """

    gpu: str
    alias: str
    clock_mhz: float
    default_clock_mhz: float
    held_clock_mhz: float
    power_limit_w: float
    precision: str
    mode: str
    batch_size: int | None
    time_s: float
    energy_j: float
    interval: Interval | None
    objective: str
    value: float
    tied: bool
    memory_bytes: int
    predictor: str
    measured: bool
    cost: float | None = None
    carbon_g: float | None = None
    notes: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    uncovered_share: float | None = 0.0

    @property
    def power_w(self) -> float:
        """Mean board power over an iteration."""
        return self.energy_j / self.time_s

    @property
    def edp_js(self) -> float:
        """Energy-delay product."""
        return self.energy_j * self.time_s

    @property
    def ed2p_js2(self) -> float:
        """Energy times delay squared."""
        return self.energy_j * self.time_s**2

    @property
    def time_per_sample_s(self) -> float | None:
        """Seconds per sample; None where the batch size is not known."""
        return None if self.batch_size is None else self.time_s / self.batch_size

    @property
    def energy_per_sample_j(self) -> float | None:
        """Joules per sample; None where the batch size is not known."""
        return None if self.batch_size is None else self.energy_j / self.batch_size

    def __str__(self) -> str:
        samples = "" if self.batch_size is None else f", batch {self.batch_size}"
        return (
            f"{self.alias} at {self.clock_mhz:g} MHz, {self.precision}{samples}, {self.mode}: "
            f"{si(self.time_s, 's')}, {si(self.power_w, 'W')}, {si(self.energy_j, 'J')}"
            f"{f'; {INCOMPLETE}: {self.uncovered_text} not covered' if self.uncovered else ''}"
        )

    @property
    def uncovered_text(self) -> str:
        """How much of the job the totals do not include: "12 %" or "an unknown share"; empty where all is covered."""
        if not self.uncovered:
            return ""
        return "an unknown share" if self.uncovered_share is None else percent(self.uncovered_share)

    def _repr_html_(self) -> str:
        return as_html(self)

    def _picture(self) -> Picture:
        """Each quantity with its interval."""
        return as_picture(self)

    def to_dict(self) -> dict[str, Any]:
        """The choice as plain lists and dictionaries; quantities in SI units."""
        return {
            **{name: getattr(self, name) for name in WRITTEN.split()},
            "interval": None if self.interval is None else self.interval.to_dict(),
            "notes": list(self.notes),
            "uncovered": list(self.uncovered),
        }


def incomplete_notes(choices: Iterable[Choice]) -> list[str]:
    """Lines that say what the totals of these choices do not include; none where everything is covered."""
    notes = (note for choice in choices for note in choice.notes if note.startswith(INCOMPLETE))
    return [*dict.fromkeys(notes)]


def choices_table(choices: Iterable[Choice]) -> Table:
    """A row for each choice."""
    columns = _COLUMNS.split()
    return Table(columns, ([getattr(choice, column) for column in columns] for choice in choices))


WRITTEN = (
    "gpu alias clock_mhz default_clock_mhz held_clock_mhz power_limit_w precision mode batch_size time_s power_w "
    "energy_j edp_js ed2p_js2 time_per_sample_s energy_per_sample_j cost carbon_g objective value tied "
    "memory_bytes predictor measured uncovered_share"
)
"""What a dictionary of a choice has, beside its interval and lists."""


@dataclass(frozen=True)
class LeftOut:
    """A GPU that was excluded for one precision and batch size, and the reason."""

    gpu: str
    precision: str
    batch_size: int | None
    reason: str


class Choices(Answer, list[Choice]):
    """Choices, best first, and the GPUs that were excluded.

    Args:
        choices: Best first.
        left_out: GPUs that cannot run the job.
    """

    def __init__(self, choices: Iterable[Choice] = (), left_out: tuple[LeftOut, ...] = ()) -> None:
        super().__init__(choices)
        self.left_out = left_out

    def _table(self) -> Table:
        return choices_table(self)

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no choice"

    def to_dict(self) -> dict[str, Any]:
        """The choices, best first, and the GPUs that were left out."""
        return {"choices": [choice.to_dict() for choice in self], "left_out": [asdict(out) for out in self.left_out]}

    def _picture(self) -> Picture:
        """The objective of each choice with its interval."""
        return as_picture(self)
