"""Answers as bytes: JSON, CSV, or the exact values for `joulecast.Client`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from .. import wire
from ..generation.choices import GenerationChoices
from ..predictors.networks.many import NetworkPredictions
from ..predictors.operation_predictions import OperationPredictions
from ..queries import Choices

JSON, CSV = "application/json", "text/csv; charset=utf-8"


def media_type_of(accept: str, form: str | None = None) -> str:
    """The media type of an answer: that of `?format=`, or else of the header Accept; JSON by default."""
    if form is not None:
        return CSV if form == "csv" else JSON
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    known = {"text/csv": CSV, JSON: JSON, wire.MEDIA_TYPE: wire.MEDIA_TYPE}
    return next((known[part] for part in accepted if part in known), JSON)


def rendered(
    value: Any, media_type: str, to_json: Callable[[Any], Any], to_csv: Callable[[Any], str] | None = None
) -> bytes:
    """Encode an answer.

    Args:
        value: The library's answer.
        media_type: Media type, as `media_type_of` returned it.
        to_json: Function that turns the answer into plain lists and dictionaries.
        to_csv: Function that turns it into CSV; None where there is none, and JSON is sent instead.
    """
    if media_type == wire.MEDIA_TYPE:
        return json_bytes(wire.pack(value))
    if media_type == CSV and to_csv is not None:
        return to_csv(value).encode()
    return json_bytes(to_json(value))


def json_bytes(value: Any) -> bytes:
    """Encode as strict JSON, in which NaN and infinity become null."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # for integers of more than 64 bits
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ARRAYS = ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j", "host_time_s")


def operations_json(predictions: OperationPredictions) -> dict[str, Any]:
    """Predictions of single operations, one object each; values that are missing are null."""
    columns = {name: getattr(predictions, name).tolist() for name in _ARRAYS}
    return {
        "operations": [
            {**operation.to_json(), **{name: column[i] for name, column in columns.items()}, "source": source}
            for i, (operation, source) in enumerate(zip(predictions.operations, predictions.source, strict=True))
        ],
        "static_power_w": predictions.static_power_w,
    }


_TOTALS = (
    "time_s",
    "power_w",
    "energy_j",
    "edp_js",
    "device_time_s",
    "host_time_s",
    "held_clock_mhz",
    "uncovered_share",
)


def network_totals_json(predictions: NetworkPredictions) -> dict[str, Any]:
    """Totals of many networks, one object each; values of a network without a total are null."""
    columns = {name: getattr(predictions, name).tolist() for name in _TOTALS}
    return {
        "gpu": predictions.gpu,
        "clock_mhz": predictions.clock_mhz,
        "power_limit_w": predictions.power_limit_w,
        "predictor": predictions.predictor,
        "networks": [
            {"network": name, **{column: values[i] for column, values in columns.items()}, "problem": problem or None}
            for i, (name, problem) in enumerate(zip(predictions.names, predictions.problems, strict=True))
        ],
    }


def generation_choices_json(choices: GenerationChoices) -> dict[str, Any]:
    """Ways to serve a model: the best of each GPU, the Pareto front, all ways, and the GPUs that were left out."""
    return {**choices.to_json(), "rows": [row.to_json() for row in choices.rows]}


def choices_json(choices: Choices) -> dict[str, Any]:
    """Choices, best first, and the GPUs that were left out."""
    return {"choices": [choice.to_json() for choice in choices], "left_out": [asdict(out) for out in choices.left_out]}
