"""Logs a result as metrics of the active MLflow run."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, MissingDependencyError, with_extra
from .result import Metering

PREFIX = "system/"
"""MLflow shows metrics with this prefix together with its own system metrics."""


def active_run() -> Any:
    """The active run, to which metrics are logged.

    Raises:
        MissingDependencyError: MLflow is not installed.
        InputError: No run is active.
    """
    try:
        import mlflow
    except ImportError as error:
        raise MissingDependencyError("logging to MLflow needs the package mlflow", hint=with_extra("mlflow")) from error
    run = mlflow.active_run()
    if run is None:
        raise InputError("no MLflow run is active", given="mlflow=True", hint="measure inside mlflow.start_run()")
    return run


def log_metering(metering: Metering) -> None:
    """Log the totals, and those of each device and window, as metrics of the active run."""
    active_run()
    import mlflow

    values = {"duration_s": metering.duration_s}
    if metering.energy_j is not None and metering.mean_w is not None:
        values |= {"energy_j": metering.energy_j, "mean_power_w": metering.mean_w}
    for found in metering.devices:
        values[f"{found.device.name}_energy_j"] = found.energy_j
        values[f"{found.device.name}_mean_power_w"] = found.mean_w
    for node in metering.tree().root.walk():
        if node.level == "module":
            values[f"window/{node.path}_energy_j"] = node.total.energy_j
    mlflow.log_metrics({PREFIX + name: value for name, value in values.items()})
