"""A zoo entry as an MLflow model. MLflow stores this file and runs it ("models from code"), so nothing is pickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
from mlflow.pyfunc import PythonModel

from joulecast.operations import Operation
from joulecast.zoo import load_entry
from joulecast.zoo.tracking import OUTPUTS


class JoulecastModel(PythonModel):  # type: ignore[misc]
    """Takes a table with a column `operation` of Operations as JSON; returns times, powers and energies."""

    def load_context(self, context: Any) -> None:
        """Load the entry that was logged as an artifact."""
        # (Type hints on `predict` would be taken for a schema.)
        self._predictor = load_entry(Path(context.artifacts["entry"])).operations

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Predict one row per operation."""
        import pandas as pd

        operations = [Operation.from_json(json.loads(text)) for text in model_input["operation"]]
        predictions = self._predictor.predict(operations)
        return pd.DataFrame({name: getattr(predictions, name) for name in OUTPUTS})


mlflow.models.set_model(JoulecastModel())
