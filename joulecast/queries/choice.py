"""Choice: one GPU at one clock in one precision for one job, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..predictors.intervals.network_calibration import Interval
from ..predictors.networks.costs import INCOMPLETE, percent
from ..predictors.networks.prediction import QUANTITIES, quantity_table
from ..rendering.answers import Answer, Drawn, Plain, Table
from ..rendering.notebook import Bar, Picture, bars, document, notes, short, table
from ..units import number, si
from .objectives import OBJECTIVES

LEVEL = 0.9
"""Level of the intervals of choices."""

WRITTEN = (
    "gpu alias clock_mhz default_clock_mhz held_clock_mhz power_limit_w precision mode batch_size time_s power_w "
    "energy_j edp_js ed2p_js2 time_per_sample_s energy_per_sample_j cost carbon_g objective value tied "
    "memory_bytes predictor measured uncovered_share"
)
"""What a dictionary of a choice has, beside its interval and lists."""
_NO_COLUMNS = ("alias", "default_clock_mhz", "objective", "value", "tied")
SHOWN = 12
"""Most choices that Jupyter shows."""


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

    @property
    def name(self) -> str:
        """Short name of the GPU, with the precision and batch size where they are chosen."""
        batch = "" if self.batch_size is None else f", batch {self.batch_size}"
        return self.alias + ("" if self.precision == "default" else f", {self.precision}") + batch

    def _repr_html_(self) -> str:
        remarks = [f"predicted by {self.predictor}", *self.notes]
        if not self.measured:
            remarks.insert(0, "never measured: predicted from its data sheet alone")
        return document(str(self), quantity_table(self, self.interval), notes(remarks))

    def _picture(self) -> Picture:
        items = []
        for place, (title, name, unit) in enumerate(QUANTITIES):
            value = getattr(self, name)
            low_high = getattr(self.interval, name) if self.interval else None
            shares = (low_high[0] / value, low_high[1] / value) if low_high else None
            items.append(Bar(title, 1.0, si(value, unit), shares, place))
        return Picture(bars(items, f"{self.name}, {self.mode}, at {self.clock_mhz:g} MHz"))

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
    columns = [name for name in WRITTEN.split() if name not in _NO_COLUMNS]
    return Table(columns, ([getattr(choice, column) for column in columns] for choice in choices))


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

    def _repr_html_(self) -> str:
        """A table of each GPU at its best clock, best first, and of the GPUs that were excluded."""
        more = [f"and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return document(
            f"{self[0].mode}, least {objective_of(self)[0]} first" if self else "no choice",
            choices_html(self),
            notes([*incomplete_notes(self), *more, *left_out_notes(self.left_out)]),
        )

    def _picture(self) -> Picture:
        """The objective of each choice with its interval, where it has one; measured GPUs have their own colour."""
        words, unit = objective_of(self)
        quantity = OBJECTIVES[self[0].objective].quantity if self else ""

        items = []
        for choice in self[:SHOWN]:
            # A value per sample has the same relative interval as the value per iteration.
            scale, ends = (
                choice.value / getattr(choice, quantity, choice.value),
                getattr(choice.interval, quantity, None),
            )
            whiskers = None if ends is None else (scale * ends[0], scale * ends[1])
            name = short(f"{choice.name}, {choice.clock_mhz:g} MHz")
            text = si(choice.value, unit) + ("" if choice.measured else ", never measured")
            items.append(Bar(name, choice.value, text, whiskers, int(choice.measured)))
        return Picture(bars(items, f"Least {words} first"))


def objective_of(choices: Sequence[Choice]) -> tuple[str, str]:
    """The objective of some choices in words, and its unit; empty where there are no choices."""
    if not choices:
        return "", ""
    objective = OBJECTIVES[choices[0].objective]
    several = len({choice.batch_size for choice in choices}) > 1 and not objective.per_sample
    return objective.words + (" per sample" if several else ""), objective.unit


def choices_html(choices: Sequence[Choice]) -> str:
    """The first choices as a table, with what is to be said of each."""
    words, unit = objective_of(choices)
    has_value = words not in ("", "time", "energy")  # Time and energy have columns of their own.
    rows = [
        [
            row.alias,
            f"{row.clock_mhz:g}",
            row.precision,
            "" if row.batch_size is None else str(row.batch_size),
            *([si(row.value, unit) if unit else number(row.value)] if has_value else []),
            *(si(getattr(row, name), unit) for _, name, unit in QUANTITIES),
            ", ".join(
                [
                    *(["tied"] if row.tied else []),
                    *([] if row.measured else ["never measured"]),
                    *([f"{INCOMPLETE}: {row.uncovered_text} not covered"] if row.uncovered else []),
                ]
            ),
        ]
        for row in choices[:SHOWN]
    ]
    header = ["GPU", "clock MHz", "precision", "batch", *([words] if has_value else []), "time", "power", "energy"]
    return table([*header, ""], rows, frozenset({1, *range(3, len(header))})) if rows else ""


def left_out_notes(left_out: Iterable[LeftOut]) -> list[str]:
    """The GPUs that were excluded: one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for out in left_out:
        by_reason.setdefault(out.reason, []).append(out.gpu)
    return [f"left out: {', '.join(dict.fromkeys(gpus))}: {reason}" for reason, gpus in by_reason.items()]
