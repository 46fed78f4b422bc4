"""Entries of predictors that serve every GPU, in both modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import damaged_entry
from ...hardware import GPU, find_gpu
from ...operations.operation import MODES, Operation
from ...predictors.contract import ResidualModel
from ...predictors.fitting.fit import read_residual_model
from ...predictors.intervals import conformal
from ...predictors.intervals.calibration import Calibration
from ...predictors.intervals.network_calibration import NetworkCalibration
from ...predictors.model.learned import OneModel
from ...predictors.model.shared import SharedByAll
from ...predictors.networks.composition import EAGER, HostModel
from ...predictors.networks.prepared import NetworkPredictor
from .cards import ModelCard, host_of, name_of
from .files import StoredEntry
from .stored import GOLDEN_OPERATIONS, golden_of, golden_operations, save_as_entry, smoke_test

_MOST_GOLDEN_GPUS = 64


@dataclass(frozen=True, eq=False)
class AnyGpuEntry:
    """A loaded entry, to be used on any GPU."""

    name: str
    learned: ResidualModel
    hosts: Mapping[str, HostModel]
    network_errors: Mapping[str, NetworkCalibration]
    calibration: Calibration | None
    kernels: OneModel | None = None

    @property
    def shared(self) -> SharedByAll:
        """What all GPUs share."""
        return SharedByAll(self.learned, self.calibration, self.kernels)

    def on(self, gpu: GPU, mode: str) -> NetworkPredictor:
        """The predictor of a GPU and mode."""
        predictor = NetworkPredictor(
            name=self.name,
            operations=self.shared.on(gpu, mode),
            host=self.hosts[mode],
            network_errors=self.network_errors.get(mode),
            half_errors=self._half_errors(gpu, mode),
            any_gpu=True,
        )
        return predictor.under(EAGER)

    def _half_errors(self, gpu: GPU, mode: str) -> NetworkCalibration | None:
        """Errors on networks in half precision; None where kernels do not predict these."""
        if self.kernels is None or not self.kernels.predicts_networks(gpu):
            return None
        basis = self.kernels.network_basis(gpu)
        errors = self.kernels.network_errors.get(basis)
        if not errors:
            return None
        if mode == "training":
            return NetworkCalibration.of_errors(conformal.step_errors(errors["power"]), conformal.TRAINING_BASIS)
        return NetworkCalibration.of_errors(errors, f"networks in half precision that were left out, from {basis}")


def _golden(learned: ResidualModel, golden: Mapping[str, list[Operation]]) -> dict[str, Any]:
    """The golden prediction: GPU -> operations, and what they are predicted to cost on it."""
    by_gpu = {}
    for gpu, operations in golden.items():
        predictions = SharedByAll(learned).on(find_gpu(gpu), operations[0].mode).predict(operations)
        by_gpu[gpu] = golden_of(operations, predictions, "device_time_s", "power_w")
    return by_gpu


def save_any_gpu(
    folder: str | Path, learned: ResidualModel, card: ModelCard, golden: Mapping[str, list[Operation]]
) -> Path:
    """Write an entry.

    Args:
        golden: GPU -> operations of one mode for the golden prediction; the first eight are used.
    """
    facts, files = learned.to_files()
    shown = _golden(learned, {gpu: operations[:GOLDEN_OPERATIONS] for gpu, operations in golden.items()})
    return save_as_entry(folder, card, facts, files, shown, facts["predictor"])


def read_any_gpu(stored: StoredEntry) -> tuple[AnyGpuEntry, dict[str, Any]]:
    """An entry for any GPU, and its golden prediction as it comes out now."""
    card, facts = stored.card, stored.facts
    # Entries that were trained before have the names of the measured GPUs in their card alone.
    facts.setdefault("gpus", [str(row["gpu"]) for row in card["data"] if row["operations"]])
    learned = read_residual_model(facts, stored)
    network_errors = {
        mode: NetworkCalibration.of_errors(quantities, "networks of chips of which nothing was known")
        for mode, quantities in card["log_errors"].items()
        if quantities
    }
    errors = card.get("device_errors")
    calibration = Calibration.of_device_errors(errors, card.get("power_errors") or {}) if errors else None
    hosts = {mode: host_of(card["host"][mode]) for mode in MODES}
    if len(stored.golden) > _MOST_GOLDEN_GPUS:
        raise damaged_entry("a golden prediction is of too many GPUs", len(stored.golden), f"up to {_MOST_GOLDEN_GPUS}")
    golden = {gpu: golden_operations(value["operations"]) for gpu, value in stored.golden.items()}
    entry = AnyGpuEntry(name_of(card["name"]), learned, hosts, network_errors, calibration)
    for gpu, operations in golden.items():
        smoke_test(entry.on(find_gpu(gpu), operations[0].mode), operations)
    return entry, _golden(learned, golden)
