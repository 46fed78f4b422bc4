"""Entries of CPUs, each for one model of CPU and one mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...hardware.cpu import find_cpu
from ...operations.operation import Operation
from ...predictors.contract import INPUT_NAMES
from ...predictors.cpu import CallModel, CpuPredictor
from ...predictors.formats.numbers import errors_to_text, number, require_features, sorted_errors
from ...predictors.networks.on_cpu import CpuNetworkPredictor, SerialModel
from ...predictors.regressors.fitted_trees import ONE_GPU_FORMS
from .cards import ModelCard, name_of
from .files import StoredEntry
from .stored import GOLDEN_OPERATIONS, golden_of, golden_operations, save_as_entry, smoke_test

CPU_PREDICTOR = "cpu"
"""What the manifests of these entries name as their predictor. The recipe stands in the card."""


def save_cpu_entry(
    folder: str | Path, predictor: CpuNetworkPredictor, card: ModelCard, golden: list[Operation]
) -> Path:
    """Write an entry.

    Args:
        golden: Operations for the golden prediction; the first eight are used.
    """
    operations = predictor.operations
    facts = {
        **operations.facts(),
        "recipe": card.predictor,
        "serial": predictor.serial.to_dict(),
        "network_errors": errors_to_text({name: np.array(e) for name, e in predictor.network_errors.items()}),
    }
    files = operations.time.to_files("time")
    if operations.power is not None:
        files |= operations.power.to_files("power")
    return save_as_entry(folder, card, facts, files, _golden(operations, golden[:GOLDEN_OPERATIONS]), CPU_PREDICTOR)


def _golden(predictor: CpuPredictor, operations: list[Operation]) -> dict[str, Any]:
    """The golden prediction: a few operations, and what they are predicted to cost."""
    columns = ("time_s",) if predictor.power is None else ("time_s", "power_w")
    return golden_of(operations, predictor.predict(operations), *columns)


def read_cpu(stored: StoredEntry) -> tuple[CpuNetworkPredictor, dict[str, Any]]:
    """The predictor of an entry, and its golden prediction as it comes out now."""
    facts = stored.facts
    require_features(facts["inputs"], INPUT_NAMES, stored.where)
    from_files = ONE_GPU_FORMS[facts["recipe"]].from_files
    typical_w = number(facts["typical_power_w"])
    operations = CpuPredictor(
        cpu=find_cpu(name_of(facts["gpu"])),
        mode=facts["mode"],
        threads=int(number(facts["threads"])),
        calls=CallModel.from_dict(facts["calls"]),
        time=from_files(stored, "time"),
        power=from_files(stored, "power") if typical_w else None,
        typical_power_w=typical_w,
        measured=frozenset(facts["measured"]),
    )
    errors = {str(quantity): tuple(sorted_errors(e).tolist()) for quantity, e in facts["network_errors"].items()}
    serial = SerialModel.from_dict(facts["serial"])
    predictor = CpuNetworkPredictor(name_of(stored.card["name"]), operations, serial, errors)
    golden = golden_operations(stored.golden["operations"])
    smoke_test(predictor, golden)
    return predictor, _golden(operations, golden)
