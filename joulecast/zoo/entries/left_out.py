"""Errors of a predictor on each network and operation left out of its training; promotion.py compares these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ZooError
from .common_files import read_card
from .files import checked_files, parsed_json

if TYPE_CHECKING:
    from ...predictors.evaluation.one_gpu import Validation

LEFT_OUT = "left_out.json"

Errors = Mapping[str, Mapping[str, float]]
"""Network or operation that was left out -> quantity -> relative error."""


def operations_left_out(validation: Validation) -> dict[str, dict[str, float]]:
    """Relative errors of time and power of each operation in cross-validation; of repeated measurements, the median."""
    found: dict[str, dict[str, float]] = {}
    for errors in validation.operations:
        repeats: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"time": [], "power": []})
        time = (errors.predicted_time_s / errors.time_s - 1).tolist()
        power = (errors.predicted_power_w / errors.power_w - 1).tolist()
        for operation, time_error, power_error in zip(errors.operations, time, power, strict=True):
            mine = repeats[f"{operation.kind} {operation.digest[:12]} ({errors.campaign})"]
            mine["time"].append(time_error)
            mine["power"].append(power_error)
        for label, quantities in repeats.items():
            known = {name: np.array(values)[~np.isnan(values)] for name, values in quantities.items()}
            found[label] = {name: float(np.median(values)) for name, values in known.items() if len(values)}
    return found


def left_out_of(folder: Path) -> dict[str, Errors]:
    """Read the errors by which an entry is compared: on "networks", where any were measured, on "operations", or both.

    Raises:
        ZooError: The entry is damaged, or stores no such errors.
    """
    _, files = checked_files(folder, {"card.json"})
    card = read_card(files)
    try:
        found = {"networks": _checked(errors_of_networks(card))}
        if LEFT_OUT in files:
            found["operations"] = _checked(parsed_json(files[LEFT_OUT], "the errors of this zoo entry"))
        if any(found.values()):
            return {what: errors for what, errors in found.items() if errors}
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ZooError(
            "the errors of this zoo entry are damaged",
            given=f"{folder}: {error}"[:300],
            hint="train it again to compare it",
        ) from error
    raise ZooError(
        "this zoo entry stores no errors on what was left out", given=str(folder), hint="train it again to compare it"
    )


def errors_of_networks(card: Mapping[str, Any]) -> Mapping[str, Any]:
    """Network -> relative errors, from a card; empty where no network was measured."""
    networks: Mapping[str, Any] = card["network_errors"]
    # The card of a predictor for any GPU has two tables: nothing known of the chip, or other networks known.
    if networks and "time" not in next(iter(networks.values())):
        networks = next(iter(networks.values()))
    return networks


def _checked(errors: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    found = {
        str(label): {str(name): float(value) for name, value in quantities.items()}
        for label, quantities in errors.items()
    }
    if any(value <= -1 for quantities in found.values() for value in quantities.values()):
        raise ValueError("a relative error of -100 % or less")
    return found
