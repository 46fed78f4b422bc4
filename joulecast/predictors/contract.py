"""The interfaces of predictors: what predicts operations on a GPU in a mode, and what is learned for it.

Seconds and joules are computed in the same way on every GPU (predictor.py): physics at the clock and under
the power cap that are asked for, times the ratio that a `ResidualModel` has learned. Physics alone, trees, a
transformer and an average of these differ only in their residual model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..errors import InputError
from ..hardware import GPU
from ..operations.network import Network
from ..operations.operation import MODES, Operation
from ..operations.operation_list import OperationList
from .formats.numbers import numbers
from .intervals.operation_spread import OperationSpread
from .operation_predictions import OperationPredictions
from .physics.clock import Work
from .physics.energy import EnergyConstants
from .physics.operation_numbers import numbers_of
from .physics.relative import RELATIVE_NAMES

if TYPE_CHECKING:
    from ..datasets import NetworkMeasurement

Networks: TypeAlias = "Sequence[tuple[GPU, NetworkMeasurement, Network]]"
"""Measured networks: the GPU, the measurement, and the network's operations."""


Files = Mapping[str, bytes]
"""Contents of files by their names."""


Curves = Mapping[str, Sequence[float]]
"""Learning curves: name -> one value per step, such as losses by epoch."""


INPUT_NAMES: tuple[str, ...] = (*RELATIVE_NAMES, "log_baseline", "log_baseline_over_host")
"""Inputs of a regressor: the features, the log of the baseline's loop time, and the log of that over its host time."""


def regressor_inputs(matrix: FloatArray, loop_s: FloatArray, host_s: FloatArray) -> NDArray[np.float32]:
    """Put features and baseline together as the inputs of a regressor, shape (operations, len(INPUT_NAMES))."""
    inputs = np.empty((len(matrix), matrix.shape[1] + 2), np.float32)
    inputs[:, :-2], inputs[:, -2], inputs[:, -1] = matrix, np.log(loop_s), np.log(loop_s / host_s)
    return inputs


class Regressor(Protocol):
    """Predicts one number for each operation."""

    def __call__(self, inputs: NDArray[np.float32], /) -> FloatArray:
        """Map a matrix of shape (operations, inputs) to one value per operation."""

    def to_files(self, name: str) -> dict[str, bytes]:
        """How it is stored: files whose names begin with `name`, without code, for its form's `from_files`."""


class Shared(Protocol):
    """What all GPUs share, from which operations are predicted on a GPU of which nothing was measured.

    Except for `coverage`, `spread` and `remarks`, what takes a GPU takes several at once (`Boards`), and gives arrays
    of shape (gpus, operations) then.
    """

    def coverage(self, gpu: GPU) -> tuple[str, ...]:
        """What it can predict on a GPU, in words."""

    def covered(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Whether it can predict each operation on a GPU, shape (operations,)."""

    def host_s(self, operations: OperationList, mode: str) -> FloatArray:
        """Seconds that launching each operation takes in a loop, shape (operations,)."""

    def work(self, operations: OperationList, gpu: GPU, capped: bool) -> Work:
        """Work of covered operations at the default clock; `capped` as for `ResidualModel.factors`."""

    def under_cap(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Whether `work` of each operation holds under the default cap of one GPU, shape (operations,)."""

    def read_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Least seconds of each operation inside a network, shape (operations,); NaN where none are known."""

    def spread(self, operations: OperationList, gpu: GPU) -> OperationSpread | None:
        """What is known of errors; None where nothing is."""

    def in_network(self, predictions: OperationPredictions, which: NDArray[np.bool_], gpu: GPU) -> OperationPredictions:
        """Correct some operations, given by a mask of shape (operations,), by what is known of networks."""

    def remarks(self, operations: OperationList, gpu: GPU) -> tuple[str, ...]:
        """Warnings about predictions of these operations on a GPU, one sentence each."""


class ResidualModel(Protocol):
    """The ratio of measured operations to physics, learned from many GPUs. It does not depend on the clock."""

    @property
    def energy(self) -> EnergyConstants:
        """Energy constants: joules per FLOP and per byte, and watts of a busy multiprocessor."""

    @property
    def host_s(self) -> Mapping[str, Mapping[str, float]]:
        """Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed."""

    def factors(self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True) -> FloatArray:
        """Device time over the least time of physics, shape (operations,). Energies are those of physics.

        Args:
            operations: Operations that each run in a loop of their own.
            gpu: The GPU that they run on.
            capped: Whether the factors contain the effect of the default power cap in such a loop. Callers that lower
                the clock for the cap themselves pass False.
        """

    def under_cap(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Whether the factor of each operation holds under the default power cap if it is `capped`, (operations,).

        The others hold without a cap in any case, and callers lower their clock for it.
        """

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """How it is stored: facts as plain lists and dictionaries, with its name under "predictor", and files."""


def require_mode(operations: Sequence[Operation], mode: str) -> None:
    """Refuse operations of another mode.

    Raises InputError: one of them is of another mode.
    """
    others = np.flatnonzero(numbers_of(operations).is_training != (mode == "training"))
    if len(others):
        raise InputError(f"this predictor is for {mode}", given=repr(operations[others[0]]), allowed=mode)


def host_times(value: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Read `ResidualModel.host_s` from a file's facts.

    Raises KeyError, TypeError: the facts are something else, or have no time for kinds that were not measured.
    """
    found = {mode: numbers(value[mode]) for mode in MODES}
    missing = [mode for mode in MODES if "" not in found[mode]]
    if missing:
        raise KeyError(f'host times in {missing[0]} lack "", the time of kinds that are not listed')
    return found
