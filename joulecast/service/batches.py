"""Batches: predictions that are independent of each other, as JSON and CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import JoulecastError
from ..predictors.networks.prediction import Prediction
from ..rendering.tables import table_csv
from .problems import problem_of


@dataclass(frozen=True)
class BatchItem:
    """One item of a batch: a prediction, or the reason why there is none."""

    prediction: Prediction | None
    error: JoulecastError | None


def batch_json(items: list[BatchItem], details: bool) -> dict[str, Any]:
    """A batch as plain lists and dictionaries. An item that was refused holds its problem instead of a prediction."""
    return {"results": [_item_json(item, details) for item in items]}


def _item_json(item: BatchItem, details: bool) -> dict[str, Any]:
    prediction = None if item.prediction is None else item.prediction.to_dict(details=details)
    return {"prediction": prediction, "problem": None if item.error is None else problem_of(item.error)}


def batch_csv(items: list[BatchItem]) -> str:
    """A batch as CSV, one item per line. The last column says why an item is empty."""
    header = ["network", "mode", "gpu", "clock_mhz", "predictor", "time_s", "power_w", "energy_j", "edp_js"]
    header += ["uncovered_share"]
    rows = [
        [getattr(item.prediction, name, None) for name in header]
        + [None if item.error is None else " ".join(str(item.error).split())]
        for item in items
    ]
    return table_csv([*header, "problem"], rows)
