"""The part of a prediction of operations that intervals depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation


class PredictedOperations(Protocol):
    """Operations with what was predicted of them; `OperationPredictions` is one. Arrays have a value per operation."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations."""
        ...

    @property
    def power_w(self) -> FloatArray:
        """Mean board power of each operation in a loop."""
        ...

    @property
    def device_time_s(self) -> FloatArray:
        """Seconds that the GPU works on each operation; NaN where missing."""
        ...

    @property
    def host_bound(self) -> NDArray[np.bool_]:
        """Whether launching an operation takes longer than the GPU's work."""
        ...

    @property
    def held_clock_mhz(self) -> FloatArray:
        """Graphics clock that each operation runs at."""
        ...

    @property
    def source(self) -> Sequence[str]:
        """Where each cost comes from: measured, modelled or missing."""
        ...
