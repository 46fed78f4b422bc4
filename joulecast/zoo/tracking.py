"""MLflow: one run per training or evaluation, with everything needed to judge and to repeat it.

Everything that is logged is named here. MLflow's autologging is not used.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..predictors.contract import Curves
from ..predictors.evaluation.errors import Validation
from ..predictors.recipes import Recipe
from .cards import git_commit
from .files import StoredEntry, library_versions
from .registry import log_model
from .rendering import report
from .server import connected, experiment
from .training import Trained

_DIGEST_LENGTH = 36  # of a dataset, in MLflow's tables


def track(trained: Trained, recipe: Recipe, entry: Path, uri: str | None = None, *, command: str) -> str:
    """Log a training as an MLflow run: settings, metrics, datasets, report, and the model.

    Returns the id of the run. Raises MissingDependencyError: mlflow is not installed. Raises TrackingError: the server
    cannot be reached, or refused.
    """
    card = trained.card
    settings = recipe.to_dict() | ({"dataset_sha256": card.data[0]["sha256"]} if card.gpu else {})
    tags = {
        "gpu": card.gpu or "any",
        "mode": card.mode or "inference,training",
        "predictor": card.predictor,
        "precision": ",".join(card.precisions or ["any"]),
    }
    with _started(card.name, {**tags, "command": command, "stage": "train"}, uri) as (mlflow, run_id):
        curves = getattr(getattr(trained.predictor, "learned", None), "curves", {})
        _log(mlflow, run_id, settings, trained.validation.metrics(), curves)
        _log_datasets(mlflow, run_id, card.data)
        text = report(f"Errors of {card.name}", card.splits, recipe, [trained.validation], command=command)
        mlflow.log_text(text, "report/REPORT.md")
        log_model(mlflow, StoredEntry.of(entry))
        return run_id


def track_evaluation(
    name: str,
    validations: Sequence[Validation],
    recipe: Recipe,
    datasets: Sequence[Mapping[str, Any]],
    report_file: Path,
    uri: str | None = None,
    *,
    command: str,
) -> str:
    """Log an evaluation as an MLflow run: settings, metrics per split and kind, datasets, and the report.

    Returns the id of the run. Raises MissingDependencyError, TrackingError: see `track`.

    Args:
        report_file: The report's file. All of its folder is logged.
    """
    metrics: dict[str, float] = {}
    for validation in validations:
        prefix = f"{validation.title}/" if len(validations) > 1 else ""
        metrics |= {f"{prefix}{key}": value for key, value in validation.metrics().items()}
    tags = {"validated": "; ".join(each.title for each in validations), "predictor": name}
    with _started(f"evaluate {name}", {**tags, "command": command, "stage": "evaluate"}, uri) as (mlflow, run_id):
        _log(mlflow, run_id, recipe.to_dict(), metrics)
        _log_datasets(mlflow, run_id, datasets)
        mlflow.log_artifacts(str(report_file.parent), "report")
        return run_id


@dataclass(frozen=True)
class Tuning:
    """A search for hyperparameters that is being logged: a run, with one nested run per trial."""

    run_id: str
    _mlflow: Any
    _tags: Mapping[str, str]

    def trial(self, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> str:
        """Log a trial as a nested run, and return its id."""
        with self._mlflow.start_run(nested=True, tags={**self._tags, "stage": "trial"}) as run:
            _log(self._mlflow, run.info.run_id, settings, metrics)
            return str(run.info.run_id)

    def best(self, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Log the best settings and their metrics in the run of the search."""
        _log(self._mlflow, self.run_id, {f"best_{name}": value for name, value in settings.items()}, metrics)


@contextlib.contextmanager
def tuning(name: str, tags: Mapping[str, str], uri: str | None = None, *, command: str) -> Iterator[Tuning]:
    """Log a search for hyperparameters. Trials are logged through the object that this yields.

    Raises MissingDependencyError, TrackingError: see `track`.
    """
    tags = {**tags, "command": command}
    with _started(name, {**tags, "stage": "tuning"}, uri) as (mlflow, run_id):
        yield Tuning(run_id, mlflow, tags)


@contextlib.contextmanager
def _started(name: str, tags: Mapping[str, str], uri: str | None) -> Iterator[tuple[Any, str]]:
    """A run that ends with the block: mlflow, and the id of the run."""
    with connected(uri, "this run was not logged; the files were written all the same") as mlflow:
        mlflow.set_experiment(experiment_id=experiment(mlflow, uri))
        with mlflow.start_run(run_name=name, tags={**tags, "git_commit": git_commit()}) as run:
            versions = {f"version_{library}": number for library, number in library_versions().items()}
            _log(mlflow, run.info.run_id, versions, {})
            yield mlflow, str(run.info.run_id)


def _log(
    mlflow: Any, run_id: str, settings: Mapping[str, Any], metrics: Mapping[str, float], curves: Curves | None = None
) -> None:
    """Log any number of settings, metrics, and learning curves with one step per value; NaN is left out."""
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient()
    start = client.get_run(run_id).info.start_time
    points = [(name, value, 0) for name, value in metrics.items()]
    points += [(f"curves/{name}", v, step) for name, values in (curves or {}).items() for step, v in enumerate(values)]
    logged = [
        Metric(re.sub(r"[^\w\-. /]", "_", name)[:240], float(value), start + step, step)
        for name, value, step in points
        if value == value
    ]
    client.log_batch(run_id, logged, [Param(name, str(value)) for name, value in settings.items()])


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
