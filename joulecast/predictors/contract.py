"""What every recipe promises: `fit` makes a `Fitted`, and that predicts operations on a GPU in a mode.

Predictors for any GPU share one way from what was learned to seconds and joules (any_gpu/predictor.py): physics at the
clock and under the cap that are asked for, times what a `Correction` has learned. Physics alone, trees, a transformer
and an average of these differ in their correction only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..datasets import Dataset, NetworkMeasurement
from ..hardware import GPU
from ..networks import Network
from ..operations import MODES, Operation
from .formats.numbers import numbers
from .physics.features import FloatArray
from .physics.least_times import EnergyConstants
from .predictor import PredictsOperations

Networks = Sequence[tuple[GPU, NetworkMeasurement, Network]]
"""Measured networks: where, what came out, and their operations."""


class Correction(Protocol):
    """How far operations are from physics, learned over many GPUs. Nothing of it depends on the clock."""

    @property
    def energy(self) -> EnergyConstants:
        """What work costs."""
        ...

    @property
    def host_s(self) -> Mapping[str, Mapping[str, float]]:
        """Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed."""
        ...

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Device time over the least time of physics, and dynamic energy over what physics says; one value each.

        Args:
            operations: What runs, each in a loop of its own.
            gpu: Where.
            capped: With what the default power cap is known to cost in such a loop; without it, whoever asks lets the
                clock fall for that.
        """
        ...

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """By which factors device times and dynamic energies of operations are off inside a network of them.

        Args:
            operations: Of one network; of one mode, and in precisions of the GPU.
            counts: Calls of each.
            gpu: Where.
        """
        ...


class Fitted(Protocol):
    """What a recipe learned."""

    def on(self, gpu: GPU, mode: str) -> PredictsOperations:
        """The predictor of a GPU and mode.

        Raises:
            InputError: It was fitted for others only.
        """
        ...


Fit = Callable[[Sequence[Dataset], Networks, Any], Fitted]
"""Learns from datasets and measured networks by a recipe."""


def launch_s(operations: Sequence[Operation], mode: str, host_s: Mapping[str, Mapping[str, float]]) -> FloatArray:
    """Seconds that launching each operation takes in a loop; see `Correction.host_s`."""
    known = host_s[mode]
    return np.array([known.get(operation.kind, known[""]) for operation in operations])


def host_times(value: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What `Correction.host_s` is, out of a file.

    Raises:
        KeyError, TypeError: It is something else, or says nothing of kinds that were not measured.
    """
    found = {mode: numbers(value[mode]) for mode in MODES}
    missing = [mode for mode in MODES if "" not in found[mode]]
    if missing:
        raise KeyError(f"host times of other kinds in {missing[0]}")
    return found
