"""`joulecast best` and `joulecast sweep`: a job on many GPUs and clocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..operations.inputs import titled
from .options import Asked
from .printing import Column, clock_text, left_out_lines, listing, quantity, tell, word

if TYPE_CHECKING:
    from ..queries import Choice, Choices, Sweep


def best(
    asked: Asked,
    max_time: float | None = None,
    max_power: float | None = None,
    top: int = 10,
    as_json: bool = False,
    as_csv: bool = False,
    plot: Path | None = None,
) -> None:
    """Choose the best GPU and clock for a job.

    Shows the best clock of each GPU, precision and batch size; the best choice comes first.
    """
    from ..api.choosing import best as best_of

    choices = best_of(max_time_s=max_time, max_power_w=max_power, **asked)
    if as_json:
        typer.echo(json.dumps([choice.to_dict() for choice in choices], indent=1))
    else:
        tell(choices, False, as_csv, lambda: _text(asked, choices, top))
    if plot is not None:
        choices.plot(plot)


def _text(asked: Asked, choices: Choices, top: int) -> str:
    from ..queries.choice import incomplete_notes
    from ..queries.objectives import OBJECTIVES

    per_sample = " per sample" if len({choice.batch_size for choice in choices}) > 1 else ""
    words = OBJECTIVES[asked["objective"]].words.removesuffix(per_sample)
    job = f"{titled(asked.given['model'], asked['input_shape'])}, {asked['mode']}"
    return "\n".join(
        [
            f"{job}, per iteration: least {words}{per_sample}\n",
            _choices_text(choices, top),
            *incomplete_notes(choices),
            *left_out_lines(choices.left_out),
        ]
    )


def _choices_text(choices: Choices, top: int) -> str:
    from ..queries.objectives import OBJECTIVES

    objective = OBJECTIVES[choices[0].objective]
    several_batches = len({choice.batch_size for choice in choices}) > 1
    places = {id(choice): str(place) for place, choice in enumerate(choices, 1)}

    def place(choice: Choice) -> str:
        return "best" if choice is choices[0] else "tied" if choice.tied else places[id(choice)]

    columns = [
        Column("", place, right=False),
        word("GPU", "alias"),
        Column("clock MHz", clock_text),
        quantity("time", "time_s", "s"),
        quantity("power", "power_w", "W"),
        quantity("energy", "energy_j", "J"),
        quantity("EDP", "edp_js", "Js"),
        Column("measured", lambda choice: "yes" if choice.measured else "no", right=False),
        word("predictor", "predictor"),
        word("precision", "precision", len({choice.precision for choice in choices}) > 1),
        word("batch", "batch_size", several_batches),
        Column(
            objective.words + (" per sample" if several_batches else ""),
            lambda choice: objective.text(choice.value),
            right=False,
            shown=several_batches or objective.name not in ("energy", "time", "edp"),
        ),
        word("not covered", "uncovered_text", any(choice.uncovered for choice in choices)),
    ]
    return listing(choices, columns, top)


def sweep(
    asked: Asked, plot: list[Path] | None = None, every: bool = False, as_json: bool = False, as_csv: bool = False
) -> None:
    """Predict a job on many GPUs and clocks, and print a table, CSV or JSON, or draw plots."""
    from ..api.choosing import sweep as sweep_of

    compared = sweep_of(**asked)
    for path in plot or []:
        compared.plot(path)
    tell(compared, as_json, as_csv, lambda: _sweep_text(compared, every))


def _sweep_text(sweep: Sweep, every: bool) -> str:
    from ..queries.choice import incomplete_notes

    best, front = sweep.best(), set(map(id, sweep.pareto()))
    shown = sweep.rows if every or len(sweep.curves()) == 1 else sweep.best_of_each()
    columns = [
        word("GPU", "alias"),
        word("precision", "precision"),
        Column("batch", lambda row: "-" if row.batch_size is None else str(row.batch_size)),
        Column("clock MHz", clock_text),
        quantity("time", "time_s", "s"),
        quantity("power", "power_w", "W"),
        quantity("energy", "energy_j", "J"),
        quantity("EDP", "edp_js", "Js"),
        Column("", lambda row: "best" if row is best else "front" if id(row) in front else "", right=False),
    ]
    rest = len(sweep) - len(shown)
    more = [f"the best clock of each; --all, --csv, --json and --plot show {rest} more rows"] if rest else []
    notes = [*more, *incomplete_notes(sweep), *left_out_lines(sweep.left_out)]
    return "\n".join([listing(shown, columns), *notes])
