"""The best way among many: `joulecast best` and `sweep`, `best-generation` and `best-run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..operations.inputs import titled
from ..units import duration, number, si
from .options import Asked
from .printing import Column, Shown, kilograms, kwh, listing, money, quantity, reason_lines, word

if TYPE_CHECKING:
    from ..queries import Choice, Choices, LeftOut, Sweep
    from ..runs import Run


def best(asked: Asked, shown: Shown) -> None:
    """Choose the best GPU and clock for a job.

    Shows the best clock of each GPU, precision and batch size; the best choice comes first.
    """
    from ..api.choosing import best as best_of

    choices = best_of(**asked)
    if shown.as_json:
        typer.echo(json.dumps([choice.to_dict() for choice in choices], indent=1))
        shown.draw(choices)
    else:
        shown.tell(choices, lambda: _choices_text(asked, choices, shown.top))


def _clock_text(choice: Choice) -> str:
    """The clock that is set, and the lower clock that the GPU holds under its power cap, if it is lower."""
    held = f" (held {choice.held_clock_mhz:.0f})" if choice.held_clock_mhz <= choice.clock_mhz - 1 else ""
    return f"{choice.clock_mhz:g}{held}"


_COSTS = (
    Column("clock MHz", _clock_text),
    quantity("time", "time_s", "s"),
    quantity("power", "power_w", "W"),
    quantity("energy", "energy_j", "J"),
    quantity("EDP", "edp_js", "Js"),
)


def _choices_text(asked: Asked, choices: Choices, top: int) -> str:
    from ..queries.choice import incomplete_notes
    from ..queries.objectives import OBJECTIVES

    objective = OBJECTIVES[asked["objective"]]
    several_batches = len({choice.batch_size for choice in choices}) > 1
    per_sample = " per sample" if several_batches else ""
    places = {id(choice): str(place) for place, choice in enumerate(choices, 1)}

    def place(choice: Choice) -> str:
        return "best" if choice is choices[0] else "tied" if choice.tied else places[id(choice)]

    columns = [
        Column("", place, right=False),
        word("GPU", "alias"),
        *_COSTS,
        Column("measured", lambda choice: "yes" if choice.measured else "no", right=False),
        word("predictor", "predictor"),
        word("precision", "precision", len({choice.precision for choice in choices}) > 1),
        word("batch", "batch_size", several_batches),
        Column(
            objective.words + per_sample,
            lambda choice: objective.text(choice.value),
            right=False,
            shown=several_batches or objective.name not in ("energy", "time", "edp"),
        ),
        word("not covered", "uncovered_text", any(choice.uncovered for choice in choices)),
    ]
    job = f"{titled(asked.given['model'], asked['input_shape'])}, {asked['mode']}"
    head = f"{job}, per iteration: least {objective.words.removesuffix(per_sample)}{per_sample}\n"
    notes = [*incomplete_notes(choices), *_left_out_lines(choices.left_out)]
    return "\n".join([head, listing(choices, columns, top), *notes])


def _left_out_lines(listed: Sequence[LeftOut]) -> list[str]:
    """The GPUs that were left out: one line for each reason."""
    precisions, batches = ({getattr(out, name) for out in listed} for name in ("precision", "batch_size"))

    def name(out: LeftOut) -> str:
        batch = f" at batch {out.batch_size}" if len(batches) > 1 else ""
        return out.gpu + (f" in {out.precision}" if len(precisions) > 1 else "") + batch

    return reason_lines((name(out), out.reason) for out in listed)


def sweep(asked: Asked, shown: Shown, plot: list[Path] | None = None, every: bool = False) -> None:
    """Predict a job on many GPUs and clocks, and print a table, CSV or JSON, or draw plots."""
    from ..api.choosing import sweep as sweep_of

    compared = sweep_of(**asked)
    for path in plot or []:
        compared.plot(path)
    shown.tell(compared, lambda: _sweep_text(compared, every))


def _sweep_text(sweep: Sweep, every: bool) -> str:
    from ..queries.choice import incomplete_notes

    best, front = sweep.best(), set(map(id, sweep.pareto()))
    rows = sweep.rows if every or len(sweep.curves()) == 1 else sweep.best_of_each()
    columns = [
        word("GPU", "alias"),
        word("precision", "precision"),
        Column("batch", lambda row: "-" if row.batch_size is None else str(row.batch_size)),
        *_COSTS,
        Column("", lambda row: "best" if row is best else "front" if id(row) in front else "", right=False),
    ]
    rest = len(sweep) - len(rows)
    more = [f"the best clock of each; --all, --csv, --json and --plot show {rest} more rows"] if rest else []
    return "\n".join([listing(rows, columns), *more, *incomplete_notes(sweep), *_left_out_lines(sweep.left_out)])


def best_generation(asked: Asked, shown: Shown) -> None:
    """Choose GPU, number of GPUs and their layout, clock, batch and precision to serve a language model.

    Shows the best way of each GPU and number of GPUs; the best comes first. TP is tensor parallelism, EP expert
    parallelism; other GPUs are replicas. With --rate or --max-total-power, each way is simulated, times are those at
    P99, and the commands that start the first way are printed.
    """
    from ..generation.engines import COMMANDS
    from ..traffic.best import best_generation as best_of

    choices = best_of(**{**asked, "precisions": asked["precisions"] or ("bf16",)})
    given, first = asked.given, choices[0]
    title = "Pareto front of energy and time per token" if shown.pareto else f"least {_LEAST[given['objective']]}"
    start: list[str] = []
    if first.rate_per_s is not None:
        title = title if given["rate"] is not None else "most requests per second"
        start = ["", "to start a replica of the first:"]
        for name, words in COMMANDS.items():
            start += ["", f"{name} {words['version']}:", first.command(name)]
    tokens = " + ".join(map(_lengths_text, (asked["prompt_tokens"], asked["output_tokens"])))
    head = f"{given['model']}, {tokens} tokens, by {given['engine']}: {title}\n\n"
    shown.tell_ways(choices, lambda ways: head + listing(ways, _SERVED, shown.top), start)


def _lengths_text(lengths: int | list[float]) -> str:
    """A number of tokens, a mean with its deviation, or how many lengths were given."""
    if isinstance(lengths, int) or len(lengths) == 1:
        return f"{lengths if isinstance(lengths, int) else lengths[0]:g}"
    return f"{lengths[0]:g} +- {lengths[1]:g}" if len(lengths) == 2 else f"{len(lengths)} lengths of"


_LEAST = {
    "energy": "energy per token",
    "time": "time per output token",
    "gpus": "GPUs",
    "cost": "cost per million tokens",
    "carbon": "carbon per million tokens",
}
"""Objective -> what is least."""


_PLAIN = "{:g}".format
_SERVED = [
    word("GPU", "boards"),
    Column("layout", lambda way: way.layout if way.gpus > 1 or way.draft_tokens else None, right=False),
    quantity("clock MHz", "clock_mhz", _PLAIN),
    quantity("of prompts", "prefill_clock_mhz", _PLAIN),
    quantity("cap W", "power_limit_w", _PLAIN),
    word("precision", "precision"),
    quantity("batch", "batch", str),
    quantity("requests/s", "rate_per_s", number),
    quantity("of at most", "highest_rate_per_s", number),
    quantity("energy per token", "energy_per_token_j", "J"),
    Column("time per token", lambda each: si(each.tpot_p99_s or each.time_per_output_token_s, "s")),
    Column("first token", lambda each: si(each.ttft_p99_s or each.time_to_first_token_s, "s")),
    quantity("tokens/s", "tokens_per_s", "{:,.0f}".format),
    quantity("power", "power_w", "W"),
    quantity("cost per million", "cost_per_million_tokens", number),
    quantity("CO2 per million", "carbon_g_per_million_tokens", "g"),
]


def best_run(asked: Asked, shown: Shown) -> None:
    """Choose GPU, number of GPUs, clock, micro-batch, sharding and recomputing for a whole training run.

    Shows the best way of each GPU and number of GPUs; the best comes first. Ways that do not fit are left out.
    """
    from ..runs.choosing import OBJECTIVES
    from ..runs.choosing import best_run as best_of

    choices = best_of(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    first, aim = choices[0], OBJECTIVES[choices.objective]

    def behind(run: Run) -> str | None:
        chance = None if run is first else first.chance_below(run, aim)
        return None if chance is None else "> 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"

    columns = [
        word("GPUs", "boards"),
        quantity("clock MHz", "clock_mhz", _PLAIN),
        Column("micro-batch", lambda run: str(run.input_shape[0] // run.layout.replicas // run.layout.accumulation)),
        Column("divided", lambda run: run.layout.sharding, right=False),
        Column("computed again", lambda run: run.layout.recompute, right=False),
        quantity("time", "time_s", duration),
        quantity("at the plug", "wall_energy_j", kwh),
        quantity("cost", "cost", money),
        quantity("carbon", "carbon_kg", kilograms),
        Column("behind the best", behind),
    ]
    head = f"{titled(first.model, first.input_shape)}, {first.precision}, {first.steps:,} steps\n\n"
    shown.tell_ways(choices, lambda runs: head + listing(runs, columns, shown.top))
