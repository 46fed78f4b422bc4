"""Budgets of a review: what a change to a model may add to its predicted joules, time, power and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BudgetError, InputError, named, printable
from ..operations.operation import Operation
from ..operations.operation_list import operation_text
from ..units import SI_PREFIXES, si

MEASURES: Mapping[str, tuple[str, str]] = {
    "energy": ("energy_j", "J"),
    "time": ("time_s", "s"),
    "power": ("power_w", "W"),
    "memory": ("memory_bytes", "B"),
}
"""What has a budget -> its field in a prediction's dictionary, and its unit."""

_PREFIXES = {prefix: factor for factor, prefix in (*SI_PREFIXES, (1e-6, "u"))}
_LIMIT = re.compile(r"(?:(\+?)([0-9]*\.?[0-9]+)\s*%|([0-9]*\.?[0-9]+)\s*([TGMkmuµnp]?)([A-Za-z]+))")
_MOST_CHANGES = 5


@dataclass(frozen=True)
class Budget:
    """A limit to one measure of a prediction."""

    measure: str  # "energy", "time", "power" or "memory"
    limit: float  # Largest value, in SI units; or largest increase over the baseline, as a share
    relative: bool  # Whether it limits the increase

    @classmethod
    def of(cls, written: str) -> Budget:
        """Read a budget as users write it: "energy=+5%", "time=20ms", "memory=8GB".

        Raises InputError: it is not written like this. Raises UnknownNameError: there is no such measure.
        """
        measure, _, limit = written.partition("=")
        _, unit = named("measure", measure.strip(), MEASURES, hint="write a budget as energy=+5% or energy=3J")
        match = _LIMIT.fullmatch(limit.strip())
        if match and match[2]:
            return cls(measure.strip(), float(match[2]) / 100, relative=True)
        if match and match[5] == unit:
            return cls(measure.strip(), float(match[3]) * _PREFIXES[match[4]], relative=False)
        raise InputError(
            "this is not a budget",
            given=written,
            allowed=f"an increase in percent, or a number with the unit {unit}",
            hint=f"write {measure}=+5%, or {measure}=20{unit}",
        )

    def allows(self, now: float, before: float | None) -> bool:
        """Whether a value is within the budget; before is that of the baseline, None if there is none."""
        if not self.relative:
            return now <= self.limit
        return before is not None and now <= before * (1 + self.limit)

    def __str__(self) -> str:
        return f"+{100 * self.limit:g} %" if self.relative else si(self.limit, MEASURES[self.measure][1])


@dataclass(frozen=True)
class Review:
    """A prediction beside that of a baseline, and the budgets that it has to keep."""

    now: Mapping[str, Any]  # The prediction, as `Prediction.to_dict` gives it
    before: Mapping[str, Any] | None  # That of the baseline; None if there is none
    budgets: Sequence[Budget]
    names: tuple[str, str] = ("before", "now")  # What to call the baseline and the prediction

    def __post_init__(self) -> None:
        for budget in self.budgets:
            field, unit = MEASURES[budget.measure]
            if any(prediction is not None and prediction[field] is None for prediction in (self.now, self.before)):
                raise InputError(
                    f"the {budget.measure} of this prediction is not known",
                    given=f"{budget.measure}={budget}",
                    allowed="memory of a model itself, energy and power of a GPU, or of a CPU whose power was measured",
                    hint="leave this budget out",
                )
            if budget.relative and self.before is None:
                raise InputError(
                    "an increase needs something to compare with",
                    given=f"{budget.measure}={budget}",
                    hint=f"name a baseline (--ref or --against), or give the budget in {unit} alone",
                )

    @property
    def exceeded(self) -> list[Budget]:
        """The budgets that are not kept."""
        return [budget for budget in self.budgets if not budget.allows(*self._values(budget.measure))]

    def require(self) -> None:
        """Refuse a prediction that is over a budget. Raises BudgetError: a budget is exceeded."""
        if over := self.exceeded:
            changes = []
            for measure, (now, before) in ((budget.measure, self._values(budget.measure)) for budget in over):
                change = f" ({_percent(before, now)})" if before else ""
                changes.append(f"{measure} {si(now, MEASURES[measure][1])}{change}")
            raise BudgetError(
                "the model is over its budget",
                given=", ".join(changes),
                allowed=", ".join(f"{b.measure} {b}" for b in over),
                hint="the table names the operations that changed; raise the budget if they are worth it",
            )

    def to_markdown(self) -> str:
        """A table of all measures, and of the operations whose joules changed most."""
        before, now = self.names
        rows = [
            [measure, *(si(v, unit) for v in (old, new)), _percent(old, new), *self._verdict(measure)]
            for measure, (_, unit) in MEASURES.items()
            for new, old in [self._values(measure)]
        ]
        text = (
            f"**{_text(self.now['network'])} on {self.now['gpu']}**, per iteration of {self.now['mode']}, predicted\n\n"
        )
        text += _markdown(["measure", before, now, "change", "budget", "verdict"], rows)
        if self.before is not None and (changed := _changes(self.before, self.now)):
            text += "\n\n" + _markdown(["operations that changed most", before, now, "change"], changed)
        return text

    def _values(self, measure: str) -> tuple[Any, Any]:
        field = MEASURES[measure][0]
        return self.now[field], None if self.before is None else self.before[field]

    def _verdict(self, measure: str) -> list[str]:
        budgets = [budget for budget in self.budgets if budget.measure == measure]
        over = any(budget in self.exceeded for budget in budgets)
        return [", ".join(map(str, budgets)), ("over budget" if over else "within") if budgets else ""]


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[list[str]]:
    """The operations whose joules changed most, as rows; equal operations of all modules are one."""
    old, new = _joules(before), _joules(now)
    changed = sorted({*old, *new}, key=lambda text: -abs(new.get(text, 0.0) - old.get(text, 0.0)))
    return [
        [text, si(old.get(text), "J"), si(new.get(text), "J"), _percent(old.get(text), new.get(text))]
        for text in changed[:_MOST_CHANGES]
        if old.get(text) != new.get(text)
    ]


def _joules(prediction: Mapping[str, Any]) -> dict[str, float]:
    joules: dict[str, float] = {}
    for row in prediction["operations"]:
        if row["energy_j"] is None:  # as on a CPU
            continue
        operation = Operation.from_dict({name: row[name] for name in _FIELDS})
        text = f"{row['count']} x {operation_text(operation)}"
        joules[text] = joules.get(text, 0.0) + row["energy_j"]
    return joules


_FIELDS = ("kind", "input_shapes", "attributes", "precision", "mode")


def _percent(before: float | None, now: float | None) -> str:
    if not before or now is None:
        return "" if before is now is None else "new" if not before else "gone"
    return f"{100 * (now / before - 1):+.1f} %"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(_text, line))} |" for line in lines)


def _text(value: str) -> str:
    """A text in Markdown: names of models and revisions are whatever their author wrote."""
    return re.sub(r"([\\`*\[<|])", r"\\\1", printable(value))
