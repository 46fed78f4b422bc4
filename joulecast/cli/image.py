"""`joulecast image`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..units import si
from .arguments import AsJson, Clock, Execution, HostOption, Predictor, table


def image(
    model: Annotated[str, typer.Argument(help="Name of a pipeline, such as flux_1_dev, or wan_2_1_14b for videos.")],
    gpu: Annotated[str, typer.Option(help='GPU from the catalogue, such as "H100 SXM", or a TOML file.')],
    batch: Annotated[int, typer.Option(help="Images or videos at once.")] = 1,
    frames: Annotated[int | None, typer.Option(help="Frames of a video. Default: the pipeline's.")] = None,
    height: Annotated[int | None, typer.Option(help="Pixels from top to bottom. Default: the pipeline's.")] = None,
    width: Annotated[int | None, typer.Option(help="Pixels from left to right. Default: the pipeline's.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the denoiser. Default: the pipeline's.")] = None,
    precision: Annotated[str, typer.Option(help="bf16, fp16 or fp32.")] = "bf16",
    clock: Clock = None,
    power_limit: Annotated[float | None, typer.Option(help="Power cap in watts.")] = None,
    execution: Execution = "eager",
    host: HostOption = None,
    predictor: Predictor = None,
    as_json: AsJson = False,
) -> None:
    """Predict seconds, watts and joules for each image or video that a diffusion pipeline makes."""
    from ..generation.images.predict import predict_image

    found = predict_image(
        model,
        gpu,
        batch=batch,
        frames=frames,
        height=height,
        width=width,
        steps=steps,
        precision=precision,
        clock=clock,
        power_limit_w=power_limit,
        execution=execution,
        host=host,
        predictor=predictor,
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
        return
    parts = [
        *((each.network, 1, each) for each in found.text),
        ("denoiser", found.steps, found.denoise),
        ("decoder", 1, found.decode),
    ]
    rows = [
        [name, str(times), si(part.time_s, "s"), si(part.power_w, "W"), si(times * part.known_energy_j / batch, "J")]
        for name, times, part in parts
    ]
    rows.append(
        [
            f"per {found.made}",
            "",
            si(found.time_per_image_s, "s"),
            si(found.power_w, "W"),
            si(found.energy_per_image_j, "J"),
        ]
    )
    typer.echo(
        f"{found.model}, {found.size}, batch {found.batch}, {found.precision}, on {found.gpu}; "
        f"{si(found.weights_bytes, 'B')} of weights\n"
    )
    typer.echo(table(["part", "times", "each", "power", f"joules per {found.made}"], rows, frozenset({1, 2, 3, 4})))
    for note in found.notes:
        typer.echo(f"note: {note}")
