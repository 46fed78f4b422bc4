"""Choice: one GPU at one clock in one precision for one job, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..predictors.intervals.network_calibration import Interval
from ..predictors.networks.costs import INCOMPLETE, percent
from ..predictors.networks.prediction import QUANTITIES
from ..rendering.answers import Answer, Drawn, Plain, Table
from ..rendering.described import Column, Description, listing, quantity, totals, word
from ..rendering.pictures import Bar, Picture, bars, short
from ..units import si
from .objectives import OBJECTIVES, Objective

WRITTEN = (
    "gpu alias clock_mhz default_clock_mhz held_clock_mhz power_limit_w precision mode batch_size time_s power_w "
    "energy_j edp_js ed2p_js2 time_per_sample_s energy_per_sample_j cost carbon_g objective value tied "
    "memory_bytes predictor measured uncovered_share"
)
"""What a dictionary of a choice has, beside its interval and lists."""
_NO_COLUMNS = ("alias", "default_clock_mhz", "objective", "value", "tied")
_DRAWN = 12  # Choices in a picture.
_NAMED, _LINES = 4, 8
"""Most GPUs that are named per line, and most lines, in the list of GPUs that were left out."""


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

    def described(self) -> Description:
        """What a notebook shows: quantities with intervals, and what they rest on."""
        remarks = [f"predicted by {self.predictor}", *self.notes]
        if not self.measured:
            remarks.insert(0, "never measured: predicted from its data sheet alone")
        quantities = (*QUANTITIES, ("energy-delay product", "edp_js", "Js"))
        return Description(str(self), [totals(self, self.interval, quantities, "per iteration")], remarks)

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

    def described(self, top: int = 12) -> Description:
        """What a terminal and a notebook show: each GPU at its best clock, best first, and GPUs that were excluded.

        Args:
            top: Number of choices; 0 for all.
        """
        if not self:
            return Description("no choice", notes=left_out_lines(self.left_out))
        objective, words, several_batches = objective_of(self)
        places = {id(choice): str(place) for place, choice in enumerate(self, 1)}

        def place(choice: Choice) -> str:
            return "best" if choice is self[0] else "tied" if choice.tied else places[id(choice)]

        columns = [
            Column("", place, right=False),
            word("GPU", "alias"),
            *COSTS,
            Column("measured", lambda choice: "yes" if choice.measured else "no", right=False),
            word("predictor", "predictor"),
            word("precision", "precision", len({choice.precision for choice in self}) > 1),
            word("batch", "batch_size", several_batches),
            Column(
                words,
                lambda choice: objective.text(choice.value),
                right=False,
                shown=several_batches or objective.name not in ("energy", "time", "edp"),
            ),
            word("not covered", "uncovered_text", any(choice.uncovered for choice in self)),
        ]
        beneath = [*incomplete_notes(self), *left_out_lines(self.left_out)]
        title = f"{self[0].mode}, per iteration: least {words}"
        return Description(title, [listing(self, columns, top, beneath)])

    def _picture(self) -> Picture:
        """The objective of each choice with its interval, where it has one; measured GPUs have their own colour."""
        if not self:
            return Picture(bars([], "Least  first"))
        objective, words, _ = objective_of(self)
        items = []
        for choice in self[:_DRAWN]:
            # A value per sample has the same relative interval as the value per iteration.
            scale = choice.value / getattr(choice, objective.quantity, choice.value)
            ends = getattr(choice.interval, objective.quantity, None)
            whiskers = None if ends is None else (scale * ends[0], scale * ends[1])
            name = short(f"{choice.name}, {choice.clock_mhz:g} MHz")
            text = si(choice.value, objective.unit) + ("" if choice.measured else ", never measured")
            items.append(Bar(name, choice.value, text, whiskers, int(choice.measured)))
        return Picture(bars(items, f"Least {words} first"))


def objective_of(choices: Sequence[Choice]) -> tuple[Objective, str, bool]:
    """The objective of some choices, in words, too; and whether they have several batch sizes."""
    objective, several = OBJECTIVES[choices[0].objective], len({choice.batch_size for choice in choices}) > 1
    return objective, objective.words + (" per sample" if several and not objective.per_sample else ""), several


def _clock_text(choice: Choice) -> str:
    """The clock that is set, and the lower clock that the GPU holds under its power cap, if it is lower."""
    held = f" (held {choice.held_clock_mhz:.0f})" if choice.held_clock_mhz <= choice.clock_mhz - 1 else ""
    return f"{choice.clock_mhz:g}{held}"


COSTS = (
    Column("clock MHz", _clock_text),
    *(quantity(title, name, unit) for title, name, unit in (*QUANTITIES, ("EDP", "edp_js", "Js"))),
)
"""Columns of what a choice costs."""


def reason_lines(left_out: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason, from pairs of a name that was left out and the reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out:
        by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"left out: {', '.join(names[:_NAMED])}{more}: {reason}")
    return lines[:_LINES] + ([f"and {len(lines) - _LINES} more reasons"] if len(lines) > _LINES else [])


def left_out_lines(left_out: Iterable[LeftOut]) -> list[str]:
    """The GPUs that were left out: one line for each reason."""
    listed = list(left_out)
    precisions, batches = ({getattr(out, name) for out in listed} for name in ("precision", "batch_size"))

    def name(out: LeftOut) -> str:
        batch = f" at batch {out.batch_size}" if len(batches) > 1 else ""
        return out.gpu + (f" in {out.precision}" if len(precisions) > 1 else "") + batch

    return reason_lines((name(out), out.reason) for out in listed)
