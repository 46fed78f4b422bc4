"""An operation as predictors for any GPU learn from it."""

from __future__ import annotations

from typing import NamedTuple

from ...hardware import GPU
from ...operations import Operation


class DeviceRow(NamedTuple):
    """An operation that was measured on a GPU: what the GPU took, and what the board drew meanwhile, if known."""

    gpu: GPU
    operation: Operation
    device_s: float
    power_w: float | None
