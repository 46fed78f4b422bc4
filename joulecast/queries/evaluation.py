"""Predictions of one job on one GPU over many clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..hardware import GPU
from ..predictors.features import FloatArray
from ..predictors.prediction import Interval, NetworkPredictor
from .memory import MemoryNeed
from .question import Variant


@dataclass(frozen=True)
class Curve:
    """One job on one GPU over clocks: arrays with one value per clock.

    Args:
        gpu: Where.
        variant: What.
        clocks_mhz: Ascending.
        held_clocks_mhz: What the GPU holds.
        time_s, energy_j: Per iteration.
        intervals: 90 % interval at each clock; None where no errors are known.
        memory: What it needs.
        predictor: Which zoo entry answered.
        measured: Whether something was measured on this GPU for it.
        notes: At each clock.
    """

    gpu: GPU
    variant: Variant
    clocks_mhz: FloatArray
    held_clocks_mhz: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    intervals: tuple[Interval | None, ...]
    memory: MemoryNeed
    predictor: str
    measured: bool
    notes: tuple[tuple[str, ...], ...]

    @property
    def power_w(self) -> FloatArray:
        """Mean board power over an iteration."""
        return self.energy_j / self.time_s


def curve(predictor: NetworkPredictor, gpu: GPU, variant: Variant, memory: MemoryNeed, clocks_mhz: FloatArray) -> Curve:
    """Predict a job on a GPU at each of some clocks.

    Raises:
        InputError: The GPU does not support its precision.
    """
    predictions = [predictor.predict(variant.network, float(clock)) for clock in clocks_mhz]
    return Curve(
        gpu=gpu,
        variant=variant,
        clocks_mhz=clocks_mhz,
        held_clocks_mhz=clocks_mhz,
        time_s=np.array([prediction.time_s for prediction in predictions]),
        energy_j=np.array([prediction.energy_j for prediction in predictions]),
        intervals=tuple(prediction.interval() if prediction.supports(0.9) else None for prediction in predictions),
        memory=memory,
        predictor=predictor.name,
        measured=not predictor.any_gpu,
        notes=tuple(prediction.notes for prediction in predictions),
    )
