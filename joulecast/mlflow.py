"""Predictions in MLflow runs of your own: what a job was predicted to take, beside what it took."""

from __future__ import annotations

from .errors import InputError, needing, with_extra
from .rendering.answers import Answer


def log(answer: Answer, name: str = "predicted") -> None:
    """Log an answer to the active MLflow run.

    Its numbers become metrics ("predicted/energy_j", "predicted/energy_j_low" for an interval), its words tags
    ("predicted.gpu"), and the whole answer and its picture the files predicted.json and predicted.svg.

    Args:
        answer: What joulecast answered, such as a Prediction or a Run.
        name: Name that stands before those of metrics and tags, for several answers in a run.

    Raises:
        MissingDependencyError: MLflow is not installed.
        InputError: No run is active.
    """
    with needing("logging to MLflow needs the package mlflow", with_extra("mlflow")):
        import mlflow
    if mlflow.active_run() is None:
        raise InputError("no MLflow run is active", given="none", hint="log inside mlflow.start_run()")
    told = answer.to_dict()
    ends = {each: pair for each, pair in (told.get("interval") or {}).items() if isinstance(pair, list | tuple)}
    numbers = {
        **{each: value for each, value in told.items() if type(value) in (int, float)},
        **{f"{each}_{end}": pair[i] for each, pair in ends.items() for i, end in enumerate(("low", "high"))},
    }
    mlflow.log_metrics({f"{name}/{each}": value for each, value in numbers.items()})
    mlflow.set_tags({f"{name}.{each}": value for each, value in told.items() if isinstance(value, str)})
    mlflow.log_text(answer.to_json(indent=1), f"{name}.json")
    mlflow.log_text(answer.plot().svg, f"{name}.svg")
