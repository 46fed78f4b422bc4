"""MLflow: one run per training or evaluation, with everything needed to judge and to repeat it.

Everything that is logged is named here. MLflow's autologging is not used.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...predictors.contract import Curves, curves_of
from ...predictors.evaluation.any_gpu import AnyGpuValidation
from ...predictors.evaluation.one_gpu import Validation
from ...predictors.evaluation.report import write_report
from ...predictors.recipes import Recipe
from ..entries.cards import ModelCard, git_commit
from ..entries.files import StoredEntry, library_versions
from ..training import Trained
from .mlflow_client import EXPERIMENT, connected, default_uri, experiment
from .registry import log_model

__all__ = ["EXPERIMENT", "Tuning", "default_uri", "track", "track_evaluation", "tuning"]

_AT_ONCE = 90  # MLflow accepts up to 100 parameters and 1000 metrics in one request.
_DIGEST_LENGTH = 36  # of a dataset, in MLflow's tables


def track(trained: Trained[Any, Any, Any], recipe: Recipe, entry: Path, uri: str | None = None, *, command: str) -> str:
    """Log a training as an MLflow run: settings, metrics, datasets, report with plots, and the model.

    Returns the id of the run. Raises MissingDependencyError: mlflow is not installed. Raises TrackingError: the server
    cannot be reached, or refused.
    """
    card, validation = trained.card, trained.validation
    own = isinstance(card, ModelCard)

    def fill(mlflow: Any, run_id: str) -> None:
        log_params(mlflow, recipe.to_dict() | ({"dataset_sha256": card.data["sha256"]} if own else {}))
        log_metrics(mlflow, validation.metrics())
        log_curves(mlflow, curves_of(trained.predictor) | getattr(validation, "curves", {}))
        _log_datasets(mlflow, run_id, [{"gpu": card.gpu, **card.data}] if own else card.data)
        if isinstance(validation, Validation) and validation.held_out:
            with tempfile.TemporaryDirectory() as scratch:
                write_report([validation], recipe, Path(scratch), command=command)
                mlflow.log_artifacts(scratch, "report")
        else:
            mlflow.log_text((entry / "README.md").read_text(encoding="utf-8"), "report/REPORT.md")
        log_model(mlflow, StoredEntry.of(entry))

    tags = {
        "gpu": card.gpu if own else "any",
        "mode": card.mode if own else "inference,training",
        "predictor": card.predictor,
        "precision": ",".join(card.precisions) if own else "any",
    }
    return _run(card.name, {**tags, "command": command, "stage": "train"}, uri, fill)


def track_evaluation(
    name: str,
    validations: Sequence[Validation | AnyGpuValidation],
    recipe: Recipe,
    datasets: Sequence[Mapping[str, Any]],
    report: Path,
    uri: str | None = None,
    *,
    command: str,
) -> str:
    """Log an evaluation as an MLflow run: settings, metrics per split and kind, datasets, and the report with plots.

    Returns the id of the run. Raises MissingDependencyError, TrackingError: see `track`.

    Args:
        report: The report's file. All of its folder is logged.
    """
    metrics: dict[str, float] = {}
    for validation in validations:
        prefix = ""
        if len(validations) > 1 and not isinstance(validation, AnyGpuValidation):
            prefix = f"{validation.gpu}/{validation.mode}/"
        metrics |= {f"{prefix}{key}": value for key, value in validation.metrics().items()}

    def fill(mlflow: Any, run_id: str) -> None:
        log_params(mlflow, recipe.to_dict())
        log_metrics(mlflow, metrics)
        _log_datasets(mlflow, run_id, datasets)
        mlflow.log_artifacts(str(report.parent), "report")

    of_devices = [validation for validation in validations if not isinstance(validation, AnyGpuValidation)]
    tags = {
        "gpu": ",".join(dict.fromkeys(v.gpu for v in of_devices)) or "any",
        "mode": ",".join(dict.fromkeys(v.mode for v in of_devices)) or "inference,training",
        "predictor": name,
        "precision": "any",
    }
    return _run(f"evaluate {name}", {**tags, "command": command, "stage": "evaluate"}, uri, fill)


@dataclass(frozen=True)
class Tuning:
    """A search for hyperparameters that is being logged: a run, with one nested run per trial."""

    run_id: str
    _mlflow: Any
    _tags: Mapping[str, str]

    def trial(self, settings: Mapping[str, Any], metrics: Mapping[str, float], curves: Curves | None = None) -> str:
        """Log a trial as a nested run, and return its id."""
        with self._mlflow.start_run(nested=True, tags={**self._tags, "stage": "trial"}) as run:
            log_params(self._mlflow, settings)
            log_metrics(self._mlflow, metrics)
            log_curves(self._mlflow, curves or {})
            return str(run.info.run_id)

    def best(self, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Log the best settings and their metrics in the run of the search."""
        log_params(self._mlflow, {f"best_{name}": value for name, value in settings.items()})
        log_metrics(self._mlflow, metrics)


@contextlib.contextmanager
def tuning(name: str, tags: Mapping[str, str], uri: str | None = None, *, command: str) -> Iterator[Tuning]:
    """Log a search for hyperparameters. Trials are logged through the object that this yields.

    Raises MissingDependencyError, TrackingError: see `track`.
    """
    tags = {**tags, "command": command}
    with connected(uri, "the search was not logged") as mlflow:
        mlflow.set_experiment(experiment_id=experiment(mlflow, uri))
        with mlflow.start_run(run_name=name, tags={**tags, "stage": "tuning", "git_commit": git_commit()}) as run:
            log_params(mlflow, _versions())
            yield Tuning(str(run.info.run_id), mlflow, tags)


def _run(name: str, tags: Mapping[str, str], uri: str | None, fill: Callable[[Any, str], None]) -> str:
    with connected(uri, "this run was not logged; the files were written all the same") as mlflow:
        mlflow.set_experiment(experiment_id=experiment(mlflow, uri))
        with mlflow.start_run(run_name=name, tags={**tags, "git_commit": git_commit()}) as run:
            log_params(mlflow, _versions())
            fill(mlflow, run.info.run_id)
            return str(run.info.run_id)


# Parts that runs of several kinds log


def log_params(mlflow: Any, values: Mapping[str, Any]) -> None:
    """Log any number of parameters, in several requests where needed."""
    items = list(values.items())
    for i in range(0, len(items), _AT_ONCE):
        mlflow.log_params(dict(items[i : i + _AT_ONCE]))


def log_metrics(mlflow: Any, values: Mapping[str, float]) -> None:
    """Log any number of metrics, in several requests where needed; NaN is left out."""
    items = [(_metric_name(name), float(value)) for name, value in values.items() if value == value]
    for i in range(0, len(items), _AT_ONCE):
        mlflow.log_metrics(dict(items[i : i + _AT_ONCE]))


def log_curves(mlflow: Any, curves: Curves) -> None:
    """Log learning curves: one metric per curve, one step per value; NaN is left out."""
    from mlflow.entities import Metric

    client, run = mlflow.MlflowClient(), mlflow.active_run()
    points = [
        Metric(_metric_name(f"curves/{name}"), float(value), run.info.start_time + step, step)
        for name, values in curves.items()
        for step, value in enumerate(values)
        if value == value
    ]
    for i in range(0, len(points), 10 * _AT_ONCE):
        client.log_batch(run.info.run_id, metrics=points[i : i + 10 * _AT_ONCE])


def _log_datasets(mlflow: Any, run_id: str, datasets: Sequence[Mapping[str, Any]]) -> None:
    """Log the datasets of a run: their source and digest, but not the measurements."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    inputs = []
    for data in datasets:
        clock = data.get("clock_mhz")
        dataset = Dataset(
            name=data["gpu"] if clock is None else f"{data['gpu']} at {clock:g} MHz",
            digest=str(data["sha256"])[:_DIGEST_LENGTH],
            source_type="joulecast",
            source=json.dumps({key: data[key] for key in ("source", "licence", "sha256") if key in data}),
            profile=json.dumps({key: data[key] for key in ("operations", "networks", "measured") if key in data}),
        )
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", "training")]))
    mlflow.MlflowClient().log_inputs(run_id, inputs)
    mlflow.log_dict({"datasets": [dict(data) for data in datasets]}, "datasets.json")


def _metric_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)[:240]


def _versions() -> Mapping[str, str]:
    return {f"version_{name}": found for name, found in library_versions().items()}
