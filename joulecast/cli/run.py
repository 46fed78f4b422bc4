"""`joulecast run` and `joulecast best-run`: what a whole training takes, and where it is best done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..operations.inputs import titled
from ..units import duration, number, si
from .options import Asked
from .printing import LEVEL, Column, listing, quantity, table, tell, tell_ways, totals, word

if TYPE_CHECKING:
    from ..runs import Run

_J_PER_KWH = 3.6e6


def run(asked: Asked, as_json: bool = False, as_csv: bool = False, plot: Path | None = None) -> None:
    """Predict a whole training run: hours, kilowatt-hours at the plug, price and carbon."""
    from ..runs.predict import predict_run

    found = predict_run(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    tell(found, as_json, as_csv, lambda: _text(found), plot)


def best_run(
    asked: Asked,
    pareto: bool = False,
    top: int = 10,
    as_json: bool = False,
    as_csv: bool = False,
    plot: Path | None = None,
) -> None:
    """Choose GPU, number of GPUs, clock, micro-batch, sharding and recomputing for a whole training run.

    Shows the best way of each GPU and number of GPUs; the best comes first. Ways that do not fit are left out.
    """
    from ..runs.choosing import OBJECTIVES
    from ..runs.choosing import best_run as best_of

    choices = best_of(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    shown = pareto, top, as_json, as_csv, plot
    tell_ways(choices, shown, lambda runs, top: _choices(runs, top, choices[0], OBJECTIVES[choices.objective]))


def _choices(runs: Sequence[Run], top: int, best: Run, aim: str) -> str:
    def behind(run: Run) -> str | None:
        chance = None if run is best else best.chance_below(run, aim)
        return None if chance is None else "> 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"

    columns = [
        word("GPUs", "boards"),
        quantity("clock MHz", "clock_mhz", "{:g}".format),
        Column("micro-batch", lambda run: str(run.input_shape[0] // run.layout.replicas // run.layout.accumulation)),
        Column("divided", lambda run: run.layout.sharding, right=False),
        Column("computed again", lambda run: run.layout.recompute, right=False),
        quantity("time", "time_s", duration),
        quantity("at the plug", "wall_energy_j", _kwh),
        quantity("cost", "cost", _money),
        quantity("carbon", "carbon_kg", _kilograms),
        Column("behind the best", behind),
    ]
    title = f"{titled(best.model, best.input_shape)}, {best.precision}, {best.steps:,} steps"
    return f"{title}\n\n{listing(runs, columns, top)}"


def _text(found: Run) -> str:
    interval = found.interval(LEVEL) if found.supports(LEVEL) else None
    quantities = (
        ("time", "time_s", duration),
        ("energy of the boards", "energy_j", _kwh),
        ("energy at the plug", "wall_energy_j", _kwh),
        ("cost", "cost", _money),
        ("carbon", "carbon_kg", _kilograms),
    )
    rate = "" if found.tokens_per_s is None else f", {found.tokens_per_s:,.0f} tokens/s"
    parts = [
        [part.name, duration(part.time_s), f"{100 * part.time_s / found.time_s:.1f} %", si(part.energy_j, "J")]
        for part in found.parts
    ]
    layout = found.layout
    return "\n".join(
        [
            f"{titled(found.model, found.input_shape)}, {found.precision}, on {layout.gpus}x {found.gpu}",
            f"{found.steps:,} steps of {si(found.step_s, 's')}, {number(found.samples_per_s)} samples/s{rate}",
            "",
            totals(found, interval, quantities),
            "",
            table(["part", "time", "share", "boards"], parts, frozenset({1, 2, 3})),
            "",
            f"memory needed on each GPU: {si(found.memory_bytes, 'B')}",
            *(f"note: {note}" for note in found.notes),
        ]
    )


def _kwh(joules: float) -> str:
    return f"{number(joules / _J_PER_KWH)} kWh"


def _money(value: float) -> str:
    return f"{value:,.2f}"


def _kilograms(value: float) -> str:
    return f"{number(value)} kg CO2e"
