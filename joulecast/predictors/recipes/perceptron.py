"""Settings of a perceptron whose prediction is averaged with that of boosted trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from .bounds import Range, require_within

_RANGES: Mapping[str, Range] = {
    "share": (0.0, 1.0),
    "width": (1, 4096),
    "layers": (1, 64),
    "epochs": (1, 10_000),
    "batch": (1, 1 << 20),
    "learning_rate": (1e-6, 1.0),
    "matrix_learning_rate": (1e-6, 1.0),
    "blur": (0.0, 10.0),
    "unknown_kinds": (0.0, 1.0),
}


@dataclass(frozen=True)
class PerceptronRecipe:
    """Settings of a perceptron (regressors/perceptron.py). Its prediction is averaged with that of boosted trees.

    Args:
        share: Weight of the perceptron in the mean.
        width: Units of a layer.
        layers: Number of residual pairs of layers between the first layer and the head.
        epochs: Passes over the measurements.
        batch: Measurements per step.
        learning_rate: Highest learning rate of AdamW, for biases and the head.
        matrix_learning_rate: Highest learning rate of Muon, for the matrices.
        blur: Standard deviation of the noise on the GPU's features, in units of twice their spread.
        unknown_kinds: Share of the operations whose kind is hidden.
    """

    share: float = 0.5
    width: int = 128
    layers: int = 2
    epochs: int = 10
    batch: int = 256
    learning_rate: float = 3e-3
    matrix_learning_rate: float = 1e-2
    blur: float = 0.1
    unknown_kinds: float = 0.02

    def __post_init__(self) -> None:
        for field in fields(self):
            require_within(
                f"perceptron.{field.name}", getattr(self, field.name), type(field.default), _RANGES[field.name]
            )
