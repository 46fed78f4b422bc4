"""The best way among many: `joulecast best` and `sweep`, `best-generation` and `best-run`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import typer

from ..operations.inputs import titled
from .options import Asked
from .printing import Shown


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
        said, job = choices.described(shown.top), titled(asked.given["model"], asked["input_shape"])
        shown.tell(choices, lambda: replace(said, title=f"{job}, {said.title}"))


def sweep(asked: Asked, shown: Shown, plot: list[Path] | None = None, every: bool = False) -> None:
    """Predict a job on many GPUs and clocks, and print a table, CSV or JSON, or draw plots."""
    from ..api.choosing import sweep as sweep_of

    compared = sweep_of(**asked)
    for path in plot or []:
        compared.plot(path)
    shown.tell(compared, lambda: compared.described(every))


def best_generation(asked: Asked, shown: Shown) -> None:
    """Choose GPU, number of GPUs and their layout, clock, batch and precision to serve a language model.

    Shows the best way of each GPU and number of GPUs; the best comes first. TP is tensor parallelism, EP expert
    parallelism; other GPUs are replicas. With --rate or --max-total-power, each way is simulated, times are those at
    P99, and the command that starts the first way is printed.
    """
    from ..generation.engines import COMMANDS
    from ..traffic.best import best_generation as best_of

    choices = best_of(**{**asked, "precisions": asked["precisions"] or ("bf16",)})
    given, first = asked.given, choices[0]
    title = "Pareto front of energy and time per token" if shown.pareto else f"least {_LEAST[given['objective']]}"
    start: list[str] = []
    if first.rate_per_s is not None:
        title = title if given["rate"] is not None else "most requests per second"
        version = COMMANDS[first.engine]["version"]
        start = ["", f"to start a replica of the first with {first.engine} {version}:", first.command()]
    tokens = " + ".join(map(_lengths_text, (asked["prompt_tokens"], asked["output_tokens"])))
    shown.tell_ways(choices, f"{given['model']}, {tokens} tokens, by {given['engine']}: {title}", start)


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


def best_run(asked: Asked, shown: Shown) -> None:
    """Choose GPU, number of GPUs, clock, micro-batch, sharding and recomputing for a whole training run.

    Shows the best way of each GPU and number of GPUs; the best comes first. Ways that do not fit are left out.
    """
    from ..runs.choosing import best_run as best_of

    choices = best_of(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    first = choices[0]
    shown.tell_ways(choices, f"{titled(first.model, first.input_shape)}, {first.precision}, {first.steps:,} steps")
