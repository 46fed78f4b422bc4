"""`joulecast run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..operations.inputs import titled
from ..units import duration, number, si
from .options import AsJson, Asked, Plot, asking
from .printing import table, tell

if TYPE_CHECKING:
    from ..runs import Run

_LEVEL = 0.9
_J_PER_KWH = 3.6e6


@asking(
    *("model", "input_shape", "optimizer", "model_option", "clock", "power_limit", "predictor", "execution", "host"),
    *("price_per_hour", "price_per_kwh", "carbon"),
)
def run(
    asked: Asked,
    gpu: Annotated[str, typer.Option(help='The GPUs, such as "8x H100 SXM".')],
    samples: Annotated[float | None, typer.Option(help="Samples of the data.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens of the data, in place of samples.")] = None,
    epochs: Annotated[float, typer.Option(help="Number of epochs.")] = 1.0,
    precision: Annotated[str, typer.Option(help="default, fp32, tf32, fp16, bf16, amp or amp_fp16.")] = "default",
    lora: Annotated[int | None, typer.Option(help="Rank of low-rank adapters; all else is frozen.")] = None,
    lora_targets: Annotated[
        str | None, typer.Option(help="Layers with adapters: q_proj,v_proj or all-linear. Default: those of peft.")
    ] = None,
    accumulation: Annotated[int, typer.Option(help="Micro-batches of each replica in a step.")] = 1,
    sharding: Annotated[str, typer.Option(help="What replicas divide: none, zero1, zero2, zero3 (FSDP).")] = "none",
    recompute: Annotated[str, typer.Option(help="What the backward computes again: none, selective, full.")] = "none",
    tensor_parallel: Annotated[int, typer.Option(help="GPUs that share each layer.")] = 1,
    pipeline_parallel: Annotated[int, typer.Option(help="Stages that the layers are divided into.")] = 1,
    evaluation_samples: Annotated[float, typer.Option(help="Samples that are evaluated in each epoch.")] = 0.0,
    checkpoints: Annotated[int, typer.Option(help="How often a checkpoint is stored.")] = 0,
    pue: Annotated[float, typer.Option(help="Joules of the data centre for each joule of its servers.")] = 1.0,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the parts as CSV.")] = False,
    plot: Plot = None,
) -> None:
    """Predict a whole training run: hours, kilowatt-hours at the plug, price and carbon."""
    from ..runs.predict import predict_run

    targets = lora_targets.split(",") if lora_targets and "," in lora_targets else lora_targets
    found = predict_run(
        gpu=gpu,
        samples=samples,
        tokens=tokens,
        epochs=epochs,
        precision=precision,
        lora=lora,
        lora_targets=targets,
        accumulation=accumulation,
        sharding=sharding,
        recompute=recompute,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        evaluation_samples=evaluation_samples,
        checkpoints=checkpoints,
        pue=pue,
        **{**asked, "optimizer": asked["optimizer"] or "adamw"},
    )
    tell(found, as_json, as_csv, lambda: _text(found), plot)


def _text(found: Run) -> str:
    interval = found.interval(_LEVEL) if found.micro.supports(_LEVEL) else None
    rows = []
    for what, name, text in (
        ("time", "time_s", duration),
        ("energy of the boards", "energy_j", _kwh),
        ("energy at the plug", "wall_energy_j", _kwh),
        ("cost", "cost", _money),
        ("carbon", "carbon_kg", _kilograms),
    ):
        value = getattr(found, name)
        low_high = getattr(interval, name) if interval else None
        if value is not None:
            rows.append([what, text(value), f"{text(low_high[0])} to {text(low_high[1])}" if low_high else ""])
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
            table(["", "predicted", f"{100 * _LEVEL:.0f} % interval" if interval else ""], rows, frozenset({1})),
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
