"""`joulecast image`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..units import si
from .options import Asked
from .printing import table, tell

if TYPE_CHECKING:
    from ..generation.images.predict import ImagePrediction


def image(asked: Asked, as_json: bool = False, plot: Path | None = None) -> None:
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
