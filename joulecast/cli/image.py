"""`joulecast image`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..units import si
from .options import REQUIRED, AsJson, Asked, Option, Plot, argument, asking, option
from .printing import table, tell

if TYPE_CHECKING:
    from ..generation.images.predict import ImagePrediction


@asking(
    *("clock", "execution", "host", "calibration", "predictor", "power_limit"),
    model=Option(argument("Name of a pipeline, such as flux_1_dev, or wan_2_1_14b for videos."), default=REQUIRED),
    gpu=Option(option(str, help='GPUs, such as "H100 SXM" or "4x H100 SXM", or a TOML file.'), default=REQUIRED),
    batch=Option(option(int, help="Images or videos at once."), default=1),
    frames=Option(option(int | None, help="Frames of a video. Default: the pipeline's.")),
    height=Option(option(int | None, help="Pixels from top to bottom. Default: the pipeline's.")),
    width=Option(option(int | None, help="Pixels from left to right. Default: the pipeline's.")),
    steps=Option(option(int | None, help="Steps of the denoiser. Default: the pipeline's.")),
    precision=Option(option(str, help="bf16, fp16 or fp32."), default="bf16"),
    gpus=Option(option(int | None, help="GPUs that share each image. Default: the number in --gpu.")),
    ulysses=Option(option(int | None, help="GPUs that exchange tokens for heads.")),
    ring=Option(option(int | None, help="Groups of these that pass keys and values on.")),
)
def image(asked: Asked, as_json: AsJson = False, plot: Plot = None) -> None:
    """Predict seconds, watts and joules for each image or video that a diffusion pipeline makes."""
    from ..generation.images.predict import predict_image

    prediction = predict_image(**asked)
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
