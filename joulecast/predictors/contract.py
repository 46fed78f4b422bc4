"""What predictors and recipes promise: `fit` makes a `Fitted`, and that predicts operations on a GPU in a mode.

Predictors for any GPU share one way to seconds and joules (any_gpu/predictor.py): physics at the clock and under the
power cap that are asked for, times the ratio that a `ResidualModel` has learned. Physics alone, trees, a transformer
and an average of these differ in their residual model only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..datasets import Dataset, NetworkMeasurement
from ..errors import InputError
from ..hardware import GPU
from ..operations.network import Network
from ..operations.operation import MODES, Operation
from ..operations.operation_list import OperationList
from .formats.numbers import numbers
from .operation_predictions import OperationPredictions
from .physics.energy import EnergyConstants
from .physics.operation_numbers import numbers_of

Networks = Sequence[tuple[GPU, NetworkMeasurement, Network]]
"""Measured networks: where, what came out, and their operations."""


Files = Mapping[str, bytes]
"""Contents of files by their names."""


class Regressor(Protocol):
    """Predicts one number for each operation."""

    def __call__(self, inputs: NDArray[np.float32], /) -> FloatArray:
        """Map a matrix of shape (operations, inputs) to one value per operation."""
        ...

    def to_files(self, name: str) -> dict[str, bytes]:
        """How it is stored: files whose names begin with `name`, without code, to be read by its form's `from_files`.

        Raises:
            ZooError: It was not trained, but read from files.
        """
        ...


class PredictsOperations(Protocol):
    """What every predictor does, on one GPU and in one mode."""

    @property
    def gpu(self) -> GPU:
        """Where it predicts."""
        ...

    @property
    def mode(self) -> str:
        """Inference or training."""
        ...

    @property
    def coverage(self) -> tuple[str, ...]:
        """What it covers, in words."""
        ...

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """Predict single operations at a graphics clock under a power cap; None for the GPU's defaults.

        Raises:
            InputError: An operation of another mode, or a clock or a cap that the GPU cannot hold.
        """
        ...

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """Predict operations at the default clock, to start from where they are to settle at one clock together.

        Args:
            operations: Operations of one network.
            power_limit_w: Power cap in watts. A predictor may leave it out: the clock of the network follows from it.

        Raises:
            InputError: An operation of another mode.
        """
        ...

    def in_network(self, predictions: OperationPredictions, counts: FloatArray) -> OperationPredictions:
        """The same operations as parts of one network: what is known of it beyond its parts.

        Args:
            predictions: What `predict` said of all its operations.
            counts: Calls of each operation in one iteration, shape (operations,).
        """
        ...

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """What to keep in mind about these operations here, one sentence each."""
        ...

    def by_fallback(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Which of these it leaves to another predictor, as kinds with their precision; none where it asks no other."""
        ...

    def regressor_inputs(self, operation: Operation) -> NDArray[np.float32] | None:
        """What the regressors of a GPU's own predictor see of an operation, shape (1, inputs).

        None where it is predicted in another way: by a predictor for any GPU, or by one that stands in.
        """
        ...

    def covers(self, operation: Operation) -> bool:
        """Whether it predicts this operation by itself."""
        ...

    @property
    def measured_launch_s(self) -> Mapping[str, float]:
        """Kind -> seconds that launching it takes in a loop, for the kinds that were measured on this GPU."""
        ...

    @property
    def residual_model(self) -> ResidualModel | None:
        """What it shares with predictors of other GPUs, so that it can look at many of them at once; None: nothing."""
        ...


class ResidualModel(Protocol):
    """How far operations are from what physics says, learned over many GPUs. Nothing in it depends on the clock."""

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
            gpu: The GPU that they run on.
            capped: With what the default power cap is known to cost in such a loop; without it, whoever asks lets the
                clock fall for that.
        """
        ...

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """Have operations looked at for many GPUs at once, which takes less time than one GPU after the other.

        Args:
            operations: In precisions that all these GPUs have; the list remembers for `factors`.
            gpus: Where they will be asked for.
        """
        ...

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """How it is stored: facts as plain lists and dictionaries, with its name under "predictor", and files.

        Raises:
            ZooError: It was not trained, but read from files.
        """
        ...

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """By which factors device times and dynamic energies of operations are off inside a network of them.

        Args:
            operations: Of one network; of one mode, and in precisions of the GPU.
            counts: Calls of each.
            gpu: The GPU that they run on.
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


def require_mode(operations: Sequence[Operation], mode: str) -> None:
    """Refuse operations of another mode.

    Raises:
        InputError: There is one.
    """
    others = np.flatnonzero(numbers_of(operations).is_training != (mode == "training"))
    if len(others):
        raise InputError(f"this predictor is for {mode}", given=repr(operations[others[0]]), allowed=mode)


def launch_s(operations: Sequence[Operation], mode: str, host_s: Mapping[str, Mapping[str, float]]) -> FloatArray:
    """Seconds that launching each operation takes in a loop; see `ResidualModel.host_s`."""
    known, kinds = host_s[mode], [operation.kind for operation in operations]
    of_each = {kind: known.get(kind, known[""]) for kind in set(kinds)}
    return np.array([of_each[kind] for kind in kinds])


def host_times(value: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What `ResidualModel.host_s` is, out of a file.

    Raises:
        KeyError, TypeError: It is something else, or says nothing of kinds that were not measured.
    """
    found = {mode: numbers(value[mode]) for mode in MODES}
    missing = [mode for mode in MODES if "" not in found[mode]]
    if missing:
        raise KeyError(f"host times of other kinds in {missing[0]}")
    return found
