"""Zoo entries of CPUs, each for one model of CPU and one mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...hardware.cpu import find_cpu
from ...operations.operation import Operation
from ...predictors.cpu.calls import CallModel
from ...predictors.cpu.network import CpuNetworkPredictor, SerialModel
from ...predictors.cpu.predictor import CpuPredictor
from ...predictors.formats.numbers import errors_to_text, number, require_features, sorted_errors
from ...predictors.predictor import INPUT_NAMES
from ...predictors.regressors.forms import ONE_GPU_FORMS
from .card_values import name_of
from .common_files import NEEDED, common_files, read_card, read_facts
from .entry import ModelCard
from .files import checked_files, write_files
from .golden import GOLDEN_OPERATIONS, golden_operations, refusing_damage, require_agreement, smoke_test

PREDICTOR = "cpu"
"""What the manifests of these entries name as their predictor. The recipe stands in the card."""


def save_cpu_entry(
    folder: str | Path, predictor: CpuNetworkPredictor, card: ModelCard, golden: list[Operation]
) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        folder: Folder to write, such as zoo/cpu-amd-epyc/forest-inference.
        predictor: The predictor, with regressors that were just fitted.
        card: Card of the entry.
        golden: Operations for the golden prediction; the first eight are used.
    """
    operations = predictor.operations
    facts = {
        **operations.facts(),
        "recipe": card.predictor,
        "serial": predictor.serial.to_dict(),
        "network_errors": errors_to_text({name: np.array(e) for name, e in predictor.network_errors.items()}),
    }
    files = {
        **common_files(asdict(card), facts),
        **operations.time.to_files("time"),
        **({} if operations.power is None else operations.power.to_files("power")),
    }
    return write_files(folder, files, _golden(operations, golden[:GOLDEN_OPERATIONS]), predictor=PREDICTOR)


def _golden(predictor: CpuPredictor, operations: list[Operation]) -> dict[str, Any]:
    """The golden prediction: a few operations, and what they are predicted to cost."""
    calls = predictor.predict(operations)
    found = {"operations": [operation.to_dict() for operation in operations], "time_s": calls.time_s.tolist()}
    return found if predictor.power is None else {**found, "power_w": calls.power_w.tolist()}


def load_cpu_entry(folder: str | Path) -> CpuNetworkPredictor:
    """Load an entry and check it.

    Raises:
        ZooError: The entry is missing, damaged, changed or of another format, or its golden prediction comes out
            differently.
    """
    predictor, manifest, again = read_cpu_entry(folder)
    with refusing_damage(Path(folder)):
        pairs = [(again[name], stored) for name, stored in manifest["golden"].items() if name != "operations"]
    require_agreement(Path(folder), manifest, pairs)
    return predictor


def read_cpu_entry(folder: str | Path) -> tuple[CpuNetworkPredictor, dict[str, Any], dict[str, Any]]:
    """Read an entry without comparing its golden prediction.

    Returns:
        Its predictor, its manifest, and the golden prediction as it comes out now.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    folder = Path(folder)
    manifest, files = checked_files(folder, NEEDED)
    with refusing_damage(folder):
        card, facts = read_card(files), read_facts(files)
        require_features(facts["inputs"], INPUT_NAMES, folder)
        from_files = ONE_GPU_FORMS[facts["recipe"]].from_files
        typical_w = number(facts["typical_power_w"])
        operations = CpuPredictor(
            cpu=find_cpu(name_of(facts["gpu"])),
            mode=facts["mode"],
            threads=int(number(facts["threads"])),
            calls=CallModel.from_dict(facts["calls"]),
            time=from_files(files, "time"),
            power=from_files(files, "power") if typical_w else None,
            typical_power_w=typical_w,
            measured=frozenset(facts["measured"]),
        )
        predictor = CpuNetworkPredictor(
            name=name_of(card["name"]),
            operations=operations,
            serial=SerialModel.from_dict(facts["serial"]),
            network_errors=_errors(facts["network_errors"]),
        )
        golden = golden_operations(manifest["golden"]["operations"])
        smoke_test(predictor, golden)
        return predictor, manifest, _golden(operations, golden)


def _errors(value: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {str(quantity): tuple(sorted_errors(errors).tolist()) for quantity, errors in value.items()}
