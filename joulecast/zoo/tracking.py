"""MLflow: one run per training or evaluation, with what is needed to judge it and to make it again."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import JoulecastError, MissingDependencyError
from ..predictors.recipe import BoostingRecipe, OwnRecipe
from ..predictors.report import write_report
from .any_gpu_training import TrainedAnyGpu
from .files import library_versions
from .training import Trained

EXPERIMENT = "joulecast"
OUTPUTS = ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j")
"""Columns that the logged model returns, one row per operation."""
_MODEL_CODE = Path(__file__).with_name("mlflow_model.py")


class TrackingError(JoulecastError):
    """The MLflow server or store did not take what was logged."""

    exit_code = 8


def default_uri() -> str:
    """$MLFLOW_TRACKING_URI, or SQLite in the working folder (MLflow's file store is no more)."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def _commit() -> str:
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S607
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"


def _metric_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)


def track(trained: Trained, recipe: OwnRecipe, entry: Path, uri: str | None = None, *, command: str) -> str:
    """Log a training as an MLflow run: settings, metrics, dataset digest, report with plots, and the model.

    Args:
        trained: What came out.
        recipe: What went in.
        entry: The folder of the zoo entry; it becomes the model.
        uri: Tracking server or store; None for `default_uri`.
        command: What was called.

    Returns:
        The id of the run.

    Raises:
        MissingDependencyError: mlflow is not installed.
        TrackingError: The server cannot be reached, or refused.
    """
    card = trained.card

    def fill(mlflow: Any) -> None:
        mlflow.log_params({**recipe.to_json(), **_versions(), "dataset_sha256": card.data["sha256"]})
        mlflow.log_metrics({_metric_name(name): value for name, value in trained.validation.metrics().items()})
        with tempfile.TemporaryDirectory() as scratch:
            write_report([trained.validation], recipe, Path(scratch), command=command)
            mlflow.log_artifacts(scratch, "report")
        mlflow.log_dict(dict(card.data), "dataset.json")
        _log_model(mlflow, entry)

    tags = {"gpu": card.gpu, "mode": card.mode, "predictor": card.predictor, "command": command}
    return _run(card.name, tags, uri, fill)


def track_any_gpu(
    trained: TrainedAnyGpu, recipe: BoostingRecipe, entry: Path, uri: str | None = None, *, command: str
) -> str:
    """Log a training over many GPUs: settings, errors, dataset digests, the entry's files; see `track`."""
    card = trained.card

    def fill(mlflow: Any) -> None:
        mlflow.log_params({**recipe.to_json(), **_versions()})
        errors = trained.validation.networks
        for quantity in ("time", "energy", "power") if errors else ():
            values = [abs(getattr(e, quantity)) for e in errors]
            mlflow.log_metric(f"networks/{quantity}_error_mean", sum(values) / len(values))
        for split in ("folds", "left_out"):
            for e in getattr(trained.validation, split):
                mlflow.log_metric(_metric_name(f"{split}/{e.gpu}/{e.kind}/{e.mode}/time_median"), e.median)
        mlflow.log_dict({"datasets": [dict(data) for data in card.data]}, "datasets.json")
        mlflow.log_artifacts(str(entry), "entry")

    return _run(card.name, {"gpu": "any", "predictor": card.predictor, "command": command}, uri, fill)


def _run(name: str, tags: Mapping[str, str], uri: str | None, fill: Callable[[Any], None]) -> str:
    # A server that is down would otherwise be asked for eight minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    try:
        import mlflow
    except ImportError as error:
        raise MissingDependencyError(
            "tracking needs mlflow", hint="pip install 'joulecast[mlflow]', or train with --no-track"
        ) from error
    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    uri = uri or default_uri()
    try:
        return _filled(mlflow, name, tags, uri, fill)
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise TrackingError(
            "MLflow did not take this run; the zoo entry was written all the same",
            given=uri,
            hint=f"{str(error).splitlines()[0]}; start the server, give another --tracking-uri, or use --no-track",
        ) from error


def _filled(mlflow: Any, name: str, tags: Mapping[str, str], uri: str, fill: Callable[[Any], None]) -> str:
    mlflow.set_tracking_uri(uri)
    if mlflow.get_experiment_by_name(EXPERIMENT) is None:
        # A local store would put artifacts into ./mlruns wherever it is called from; keep them beside the database.
        local = uri.startswith("sqlite:///")
        root = Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts" if local else None
        mlflow.create_experiment(EXPERIMENT, artifact_location=root.as_uri() if root else None)
    mlflow.set_experiment(EXPERIMENT)
    with mlflow.start_run(run_name=name) as run:
        mlflow.set_tags({**tags, "git_commit": _commit()})
        fill(mlflow)
        run_id: str = run.info.run_id
    return run_id


def _log_model(mlflow: Any, entry: Path) -> None:
    with warnings.catch_warnings():
        # It asks for type hints and an input example to find out the signature, which is given.
        warnings.simplefilter("ignore", UserWarning)
        mlflow.pyfunc.log_model(
            name="model",
            python_model=str(_MODEL_CODE),
            artifacts={"entry": str(entry)},
            signature=_signature(mlflow),
            # Named, because MLflow would otherwise load the model in another process to find out.
            pip_requirements=[f"joulecast=={library_versions()['joulecast']}"],
        )


def _signature(mlflow: Any) -> Any:
    from mlflow.types.schema import ColSpec, Schema

    return mlflow.models.ModelSignature(
        inputs=Schema([ColSpec("string", "operation")]), outputs=Schema([ColSpec("double", name) for name in OUTPUTS])
    )


def _versions() -> Mapping[str, str]:
    return {f"version_{name}": found for name, found in library_versions().items()}
