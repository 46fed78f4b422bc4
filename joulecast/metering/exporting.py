"""Measured joules as metrics of an MLflow run."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, needing, with_extra
from .result import Metering

PREFIX = "system/"
"""MLflow shows metrics with this prefix together with its own system metrics."""


def active_run() -> Any:
    """The active run, to which metrics are logged.

    Raises MissingDependencyError: MLflow is not installed. Raises InputError: no run is active.
    """
    with needing("logging to MLflow needs the package mlflow", with_extra("mlflow")):
        import mlflow
    run = mlflow.active_run()
    if run is None:
        raise InputError("no MLflow run is active", given="mlflow=True", hint="measure inside mlflow.start_run()")
    return run


def log_metering(metering: Metering) -> None:
    """Log the totals, and those of each device and window, as metrics of the active run."""
    active_run()
    import mlflow

    values = {"duration_s": metering.duration_s}
    modelled = "" if metering.source == "measured" else "modelled_"  # Runs are compared by name.
    if metering.energy_j is not None and metering.mean_w is not None:
        values |= {f"{modelled}energy_j": metering.energy_j, f"{modelled}mean_power_w": metering.mean_w}
    for found in metering.devices:
        values[f"{found.device.name}_energy_j"] = found.energy_j
        values[f"{found.device.name}_mean_power_w"] = found.mean_w
    for node in metering.tree().root.walk():
        if node.level == "module":
            values[f"window/{node.path}_{modelled}energy_j"] = node.total.energy_j
    mlflow.log_metrics({PREFIX + name: value for name, value in values.items()})
