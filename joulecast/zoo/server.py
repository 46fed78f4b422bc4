"""The MLflow server or store that trainings are tracked in, and models are registered in.

Requests end within seconds, and every failure is one error with a next step.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import TrackingError, needing, with_extra

# A server that is down would otherwise be asked for eight minutes.
_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_EXPERIMENT = "joulecast"
SQLITE = "sqlite:///"
"""Beginning of the addresses of stores in a file."""


def default_uri() -> str:
    """$MLFLOW_TRACKING_URI, or a SQLite file in the working folder, because MLflow has given up its file store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{Path.cwd() / 'mlflow.db'}"


def credentials() -> dict[str, str]:
    """The headers by which MLflow's own client would identify itself to a server."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    names = [os.environ.get(f"MLFLOW_TRACKING_{each}", "") for each in ("USERNAME", "PASSWORD")]
    return {"Authorization": f"Basic {base64.b64encode(':'.join(names).encode()).decode()}"} if any(names) else {}


@contextlib.contextmanager
def connected(uri: str | None, what: str, *, reading: bool = False) -> Iterator[Any]:
    """Yield the module mlflow, connected to a server or store. Its settings are restored afterwards.

    Raises MissingDependencyError: mlflow is not installed. Raises TrackingError: the server cannot be reached or
    refuses, or there is no store to read.

    Args:
        what: What failed, for the error, such as "the run was not logged".
        reading: Whether the store is only read. A store that does not exist is then an error, and is not made.
    """
    uri = uri or default_uri()
    if reading and uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file():
        raise TrackingError(
            f"there is no MLflow registry here: {what}", given=uri, hint="set $MLFLOW_TRACKING_URI to the server"
        )
    environment = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}
    os.environ.update({**_SETTINGS, **environment})
    try:
        with needing("tracking and registering need mlflow", f"{with_extra('mlflow')}; or --no-track"):
            import mlflow
        for logger in ("mlflow", "alembic"):
            logging.getLogger(logger).setLevel(logging.ERROR)
        before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
        mlflow.set_tracking_uri(uri)
        try:
            with warnings.catch_warnings():
                # MLflow and what it imports warn about themselves and each other.
                warnings.simplefilter("ignore")
                yield mlflow
        except (mlflow.exceptions.MlflowException, OSError) as error:
            raise _translated(error, uri, what) from error
        finally:
            mlflow.set_tracking_uri(before)
    finally:
        # MLflow also records its last server and experiment in environment variables.
        for name in [name for name in os.environ if name.startswith("MLFLOW_") and name not in environment]:
            del os.environ[name]
        os.environ.update(environment)


def _translated(error: Exception, uri: str, what: str) -> TrackingError:
    """The `TrackingError` for an exception that MLflow raised."""
    said = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    code = str(getattr(error, "error_code", ""))
    status = getattr(error, "get_http_status_code", lambda: 0)()
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED") or status in (401, 403) or "error code 40" in said:
        cause, hint = "MLflow denied access", "set $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD, or a token"
    elif code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
        cause, hint = "MLflow has no such object", "the page of `mlflow server` lists what there is under Models"
    elif uri.startswith("http") and ("ailed with exception" in said or "Connection" in said or "timed out" in said):
        cause, hint = "MLflow cannot be reached", "start the server, or give another --tracking-uri"
    else:
        cause, hint = "MLflow rejected this request", "see its message; give another --tracking-uri, or use --no-track"
    return TrackingError(f"{cause}: {what}", given=uri, hint=f"{hint}; it said: {said}")


def experiment(mlflow: Any, uri: str | None) -> str:
    """The id of joulecast's experiment. It is created if needed, even if several processes try that at once."""
    uri = uri or default_uri()
    known = mlflow.get_experiment_by_name(_EXPERIMENT)
    if known is None:
        # A local store would put artifacts into ./mlruns of the working folder; this puts them beside the database.
        local = uri.startswith(SQLITE)
        root = (Path(uri.removeprefix(SQLITE)).resolve().parent / "mlartifacts").as_uri() if local else None
        try:
            return str(mlflow.create_experiment(_EXPERIMENT, artifact_location=root))
        except mlflow.exceptions.MlflowException:
            known = mlflow.get_experiment_by_name(_EXPERIMENT)
            if known is None:
                raise
    return str(known.experiment_id)
