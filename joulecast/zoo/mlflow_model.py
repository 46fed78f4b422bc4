"""A zoo entry as an MLflow model. MLflow stores this file and runs it ("models from code"), so nothing is pickled."""

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc import PythonModel

from joulecast.operations import Operation
from joulecast.zoo import load_entry
from joulecast.zoo.tracking import OUTPUTS


class JoulecastModel(PythonModel):  # type: ignore[misc]
    """Takes a table with a column `operation` of Operations as JSON; returns times, powers and energies."""

    def load_context(self, context: Any) -> None:
        """Load the entry that was logged as an artifact."""
        self._predictor = load_entry(Path(context.artifacts["entry"])).operations

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predict one row per operation."""
        operations = [Operation.from_json(json.loads(text)) for text in model_input["operation"]]
        predictions = self._predictor.predict(operations)
        return pd.DataFrame({name: getattr(predictions, name) for name in OUTPUTS})


mlflow.models.set_model(JoulecastModel())
