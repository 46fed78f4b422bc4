"""`joulecast image`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..units import si
from .options import AsJson, Asked, Plot, asking
from .printing import table, tell

if TYPE_CHECKING:
    from ..generation.images.predict import ImagePrediction


@asking("clock", "execution", "host", "calibration", "predictor")
def image(
    asked: Asked,
    model: Annotated[str, typer.Argument(help="Name of a pipeline, such as flux_1_dev, or wan_2_1_14b for videos.")],
    gpu: Annotated[str, typer.Option(help='GPUs, such as "H100 SXM" or "4x H100 SXM", or a TOML file.')],
    batch: Annotated[int, typer.Option(help="Images or videos at once.")] = 1,
    frames: Annotated[int | None, typer.Option(help="Frames of a video. Default: the pipeline's.")] = None,
    height: Annotated[int | None, typer.Option(help="Pixels from top to bottom. Default: the pipeline's.")] = None,
    width: Annotated[int | None, typer.Option(help="Pixels from left to right. Default: the pipeline's.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the denoiser. Default: the pipeline's.")] = None,
    precision: Annotated[str, typer.Option(help="bf16, fp16 or fp32.")] = "bf16",
    gpus: Annotated[int | None, typer.Option(help="GPUs that share each image. Default: the number in --gpu.")] = None,
    ulysses: Annotated[int | None, typer.Option(help="GPUs that exchange tokens for heads.")] = None,
    ring: Annotated[int | None, typer.Option(help="Groups of these that pass keys and values on.")] = None,
    power_limit: Annotated[float | None, typer.Option(help="Power cap in watts.")] = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Predict seconds, watts and joules for each image or video that a diffusion pipeline makes."""
    from ..generation.images.predict import predict_image

    prediction = predict_image(
        model,
        gpu,
        batch=batch,
        frames=frames,
        height=height,
        width=width,
        steps=steps,
        precision=precision,
        gpus=gpus,
        ulysses=ulysses,
        ring=ring,
        power_limit_w=power_limit,
        **asked,
    )
    tell(prediction, as_json, False, lambda: _text(prediction), plot)


def _text(prediction: ImagePrediction) -> str:
    batch, boards = prediction.batch, prediction.gpus
    rows = [
        [
            name,
            str(times),
            si(part.time_s, "s"),
            si(part.power_w, "W"),
            si(boards * times * part.known_energy_j / batch, "J"),
        ]
        for name, times, part in prediction.parts
    ]
    rows.append(
        [
            f"per {prediction.made}",
            "",
            si(prediction.time_per_image_s, "s"),
            si(prediction.power_w, "W"),
            si(prediction.energy_per_image_j, "J"),
        ]
    )
    head = (
        f"{prediction.model}, {prediction.size}, batch {batch}, {prediction.precision}, on {boards}x {prediction.gpu}; "
        f"{si(prediction.weights_bytes, 'B')} of weights\n"
    )
    shown = table(["part", "times", "each", "power", f"joules per {prediction.made}"], rows, frozenset({1, 2, 3, 4}))
    return "\n".join([head, shown, *(f"note: {note}" for note in prediction.notes)])
