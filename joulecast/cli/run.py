"""`joulecast run` and `joulecast best-run`: what a whole training takes, and where it is best done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import titled
from ..units import duration, number, si
from .options import PRICES, REQUIRED, RUN, AsJson, Asked, Option, Pareto, Plot, Shown, WaysCsv, asking, option
from .printing import LEVEL, Column, listing, quantity, table, tell, tell_ways, totals, word
from .reading import positive_integers

if TYPE_CHECKING:
    from ..runs import Run

_J_PER_KWH = 3.6e6


_TRAINED = ("model", "input_shape", "model_option", "samples", "tokens", "epochs", "lora", "lora_targets", "optimizer")
_WHERE = (*RUN, *PRICES, "pue")
_PRECISION = Option(option(str, help="default, fp32, tf32, fp16, bf16, fp8, amp or amp_fp16."), default="default")


@asking(
    *(*_TRAINED, "clock", *_WHERE),
    gpu=Option(option(str, help='The GPUs, such as "8x H100 SXM".'), default=REQUIRED),
    precision=_PRECISION,
    accumulation=Option(option(int, help="Micro-batches of each replica in a step."), default=1),
    sharding=Option(option(str, help="What replicas divide: none, zero1, zero2, zero3 (FSDP)."), default="none"),
    recompute=Option(option(str, help="What the backward computes again: none, selective, full."), default="none"),
    tensor_parallel=Option(option(int, help="GPUs that share each layer."), default=1),
    context_parallel=Option(option(int, help="GPUs that share each sequence."), default=1),
    expert_parallel=Option(option(int, help="GPUs over which whole experts are distributed."), default=1),
    base_precision=Option(option(str | None, help="nf4 to store frozen layers in 4 bits (QLoRA).")),
    clip_gradients=Option(option(bool, help="Limit the norm of the gradients."), default=True),
    pipeline_parallel=Option(option(int, help="Stages that the layers are divided into."), default=1),
    evaluation_samples=Option(option(float, help="Samples that are evaluated in each epoch."), default=0.0),
    checkpoints=Option(option(int, help="How often a checkpoint is stored."), default=0),
    embodied_g_per_hour=Option(option(float, help="Grams of CO2 of making a GPU, for each hour of use."), default=0.0),
)
def run(
    asked: Asked,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the parts as CSV.")] = False,
    plot: Plot = None,
) -> None:
    """Predict a whole training run: hours, kilowatt-hours at the plug, price and carbon."""
    from ..runs.predict import predict_run

    found = predict_run(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    tell(found, as_json, as_csv, lambda: _text(found), plot)


@asking(
    *(*_TRAINED, "gpus", "clocks", *_WHERE),
    objective=Option(
        option(str, help="What to minimize: energy (at the plug), time, cost or carbon."), default="energy"
    ),
    precision=_PRECISION,
    counts=Option(
        option(str, help="Numbers of GPUs, such as 1,8,64."),
        default="1,8",
        read=lambda text: positive_integers(text, "numbers of GPUs"),
    ),
    max_time=Option(option(float | None, help="The deadline: most seconds of the whole run."), "max_time_s"),
    max_cost=Option(option(float | None, help="Highest cost of the whole run.")),
)
def best_run(
    asked: Asked,
    pareto: Pareto = False,
    top: Shown = 10,
    as_json: AsJson = False,
    as_csv: WaysCsv = False,
    plot: Plot = None,
) -> None:
    """Choose GPU, number of GPUs, clock, micro-batch, sharding and recomputing for a whole training run.

    Shows the best way of each GPU and number of GPUs; the best comes first. Ways that do not fit are left out.
    """
    from ..runs.choosing import best_run as best_of

    choices = best_of(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    tell_ways(choices, (pareto, top, as_json, as_csv, plot), _choices)


def _choices(runs: Sequence[Run], top: int) -> str:
    first = runs[0]
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
    ]
    title = f"{titled(first.model, first.input_shape)}, {first.precision}, {first.steps:,} steps"
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
