"""An answer as bytes: JSON, CSV, or the values themselves for `joulecast.Client`."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from .. import wire
from ..networks import Network
from ..predictors.predictor import OperationPredictions
from ..queries import Choices
from ..queries.sweep import COLUMNS

JSON, CSV = "application/json", "text/csv; charset=utf-8"


def media_type_of(accept: str, form: str | None = None) -> str:
    """The type that an answer is given in: what `?format=` says, or else the header Accept; JSON by default."""
    if form is not None:
        return CSV if form == "csv" else JSON
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    known = {"text/csv": CSV, JSON: JSON, wire.MEDIA_TYPE: wire.MEDIA_TYPE}
    return next((known[part] for part in accepted if part in known), JSON)


def rendered(
    value: Any, media_type: str, to_json: Callable[[Any], Any], to_csv: Callable[[Any], str] | None = None
) -> bytes:
    """An answer in one of the types above.

    Args:
        value: Of the library.
        media_type: As `media_type_of` gave it.
        to_json: Makes plain lists and dictionaries of it.
        to_csv: Makes a table of it; None where there is none, and JSON is given instead.
    """
    if media_type == wire.MEDIA_TYPE:
        return json_bytes(wire.pack(value))
    if media_type == CSV and to_csv is not None:
        return to_csv(value).encode()
    return json_bytes(to_json(value))


def json_bytes(value: Any) -> bytes:
    """Strict JSON: what is no number is null."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.encode()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table_csv(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows)
    return text.getvalue()


def network_csv(network: Network) -> str:
    """The operations of a network, as `joulecast extract --csv` prints them."""
    header = ["kind", "input_shapes", "attributes", "precision", "mode", "count", "flops", "bytes_read"]
    header += ["bytes_written", "parameters", "module_paths"]
    rows = []
    for entry in network:
        operation = entry.operation
        plain = operation.to_json()
        rows.append(
            [
                operation.kind,
                json.dumps(plain["input_shapes"]),
                json.dumps(plain["attributes"]),
                operation.precision,
                operation.mode,
                entry.count,
                operation.flops,
                operation.bytes_read,
                operation.bytes_written,
                operation.parameters,
                " ".join(entry.module_paths),
            ]
        )
    return table_csv(header, rows)


_ARRAYS = ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j", "host_time_s")


def operations_json(predictions: OperationPredictions) -> dict[str, Any]:
    """Predictions of single operations, one object each; null where missing."""
    columns = {name: getattr(predictions, name).tolist() for name in _ARRAYS}
    return {
        "operations": [
            {**operation.to_json(), **{name: column[i] for name, column in columns.items()}, "source": source}
            for i, (operation, source) in enumerate(zip(predictions.operations, predictions.source, strict=True))
        ],
        "static_power_w": predictions.static_power_w,
    }


def operations_csv(predictions: OperationPredictions) -> str:
    """Predictions of single operations as CSV."""
    rows = (
        [
            operation.kind,
            " ".join("x".join(map(str, shape)) for shape in operation.input_shapes),
            operation.precision,
            operation.mode,
            *(None if math.isnan(value) else value for value in values),
            source,
        ]
        for operation, source, *values in zip(
            predictions.operations,
            predictions.source,
            *(getattr(predictions, name).tolist() for name in _ARRAYS),
            strict=True,
        )
    )
    return table_csv(["kind", "input_shapes", "precision", "mode", *_ARRAYS, "source"], rows)


def choices_json(choices: Choices) -> dict[str, Any]:
    """Choices, best first, and what was left out."""
    return {"choices": [choice.to_json() for choice in choices], "left_out": [asdict(out) for out in choices.left_out]}


def choices_csv(choices: Choices) -> str:
    """Choices as CSV, best first, with the columns of a sweep."""
    return table_csv(COLUMNS, ([getattr(choice, column) for column in COLUMNS] for choice in choices))
