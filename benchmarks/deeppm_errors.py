"""Errors of what was learned of operations, as deeppm.py asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from joulecast.arrays import FloatArray
from joulecast.predictors.contract import ResidualModel
from joulecast.predictors.evaluation.any_gpu import errors_on
from joulecast.predictors.measured import DeviceRow


def log_ratios(learned: ResidualModel, rows: Sequence[DeviceRow]) -> FloatArray:
    """Log of predicted over measured device time, at default clocks."""
    return errors_on("held out", rows, learned).log_errors("time")


def power_log_ratios(learned: ResidualModel, rows: Sequence[DeviceRow]) -> dict[str, FloatArray]:
    """Log of predicted over measured power of a call."""
    return {"power": errors_on("held out", rows, learned, learned).log_errors("power")}
