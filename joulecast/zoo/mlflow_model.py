"""A zoo entry as an MLflow model. MLflow stores this file and runs it ("models from code"), so nothing is pickled."""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel

from joulecast.errors import InputError
from joulecast.operations.operation import Operation
from joulecast.zoo.entry import Entry
from joulecast.zoo.registry import ENTRY, OUTPUTS


class JoulecastModel(PythonModel):  # type: ignore[misc]
    """Predicts time, power and energy of operations that run in a loop, from a table with one operation per row.

    Columns: `operation`, an Operation as JSON; `gpu`, a name of the catalogue, needed if the predictor is for any GPU;
    and `clock_mhz`, which is optional. An empty value stands for the GPU's default clock.
    """

    def load_context(self, context: Any) -> None:
        """Load the entry that was logged as an artifact."""
        self._entry = Entry.of(Path(context.artifacts[ENTRY]))
        self._entry.check()

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predict one row per operation."""
        if "operation" not in model_input:
            raise InputError(
                "a table to predict has one operation per row",
                given=", ".join(map(str, model_input.columns)) or "no columns",
                allowed="column operation, as JSON",
            )
        operations = [Operation.from_dict(json.loads(text)) for text in model_input["operation"]]
        clocks = model_input.get("clock_mhz", pd.Series(np.nan, index=model_input.index)).astype(float)
        gpus = model_input.get("gpu", pd.Series("", index=model_input.index))
        costs = np.full((len(operations), len(OUTPUTS)), np.nan)
        groups: dict[tuple[str, str, float | None], list[int]] = {}
        for i, (operation, gpu, clock) in enumerate(zip(operations, gpus, clocks, strict=True)):
            groups.setdefault((gpu, operation.mode, None if np.isnan(clock) else float(clock)), []).append(i)
        for (gpu, mode, clock), rows in groups.items():
            predictions = self._entry.on(gpu, mode).operations.predict([operations[i] for i in rows], clock)
            costs[rows] = np.column_stack([getattr(predictions, name) for name in OUTPUTS])
        return pd.DataFrame(costs, columns=list(OUTPUTS), index=model_input.index)


mlflow.models.set_model(JoulecastModel())
