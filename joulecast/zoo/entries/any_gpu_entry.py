"""Zoo entries that serve every GPU, in both modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import damaged_entry
from ...hardware import GPU, find_gpu
from ...operations.operation import MODES, Operation
from ...predictors.any_gpu.predictor import AnyGpuPredictor
from ...predictors.contract import ResidualModel
from ...predictors.fitting.any_gpu import read_residual_model
from ...predictors.intervals.calibration import Calibration
from ...predictors.intervals.network_calibration import NetworkCalibration
from ...predictors.model.learned import OneModel
from ...predictors.networks.composition import HostModel
from ...predictors.networks.execution import EAGER
from ...predictors.networks.network_predictor import NetworkPredictor
from .card_values import host_of, name_of
from .common_files import NEEDED, common_files, read_card, read_facts
from .files import checked_files, write_files
from .golden import GOLDEN_OPERATIONS, golden_operations, refusing_damage, require_agreement, smoke_test

_MOST_GOLDEN_GPUS = 64


@dataclass(frozen=True)
class AnyGpuCard:
    """What a user should know about a predictor for any GPU.

    Args:
        name: Name of the entry, as `predictor=` takes it.
        predictor: Name of the recipe's predictor.
        recipe: Settings of the recipe.
        data: One description for each dataset that it was trained on.
        splits: How the errors below were made.
        operation_errors: Split ("folds", "gpu left out") -> GPU -> kind and mode -> median and mean error of device
            time.
        network_errors: What was known of the chip ("nothing", or other "networks" on it) -> network -> relative errors
            of time, energy and power. Operations measured on the chip were left out in both cases.
        host: Mode -> host costs of a call inside a network, see `HostModel`.
        log_errors: Mode -> quantity -> sorted absolute log errors on networks, for intervals.
        device_errors: Family -> sorted absolute log errors of device time on chips that were left out, for intervals of
            operations; "" stands for all families.
        power_errors: "power" and "energy" -> family -> the same, for loops that are bound by the GPU; empty where power
            was measured on too few chips.
        limits: What it cannot do.
        created: Date that it was made on.
        licence: Licence of the predictor.
        provenance: Commit of the code that trained it.
    """

    name: str
    predictor: str
    recipe: Mapping[str, Any]
    data: tuple[Mapping[str, Any], ...]
    splits: str
    operation_errors: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
    network_errors: Mapping[str, Mapping[str, Mapping[str, float]]]
    host: Mapping[str, Mapping[str, Any]]
    log_errors: Mapping[str, Mapping[str, tuple[float, ...]]]
    device_errors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    power_errors: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class AnyGpuEntry:
    """A loaded entry, to be used on any GPU."""

    name: str
    learned: ResidualModel
    hosts: Mapping[str, HostModel]
    network_errors: Mapping[str, NetworkCalibration]
    calibration: Calibration | None
    kernels: OneModel | None = None

    def on(self, gpu: GPU, mode: str) -> NetworkPredictor:
        """The predictor of a GPU and mode."""
        found = NetworkPredictor(
            name=self.name,
            operations=AnyGpuPredictor(gpu, mode, self.learned, self.calibration, self.kernels),
            host=self.hosts[mode],
            network_errors=self.network_errors.get(mode),
            half_errors=self._half_errors(gpu, mode),
            any_gpu=True,
        )
        return found.under(EAGER)

    def _half_errors(self, gpu: GPU, mode: str) -> NetworkCalibration | None:
        """Errors on networks in half precision; None where kernels do not predict these, as in training."""
        if self.kernels is None or mode != "inference" or not self.kernels.predicts_networks(gpu):
            return None
        basis = self.kernels.network_basis(gpu)
        errors = self.kernels.network_errors.get(basis)
        if not errors:
            return None
        return NetworkCalibration.of_errors(errors, f"networks in half precision that were left out, from {basis}")


def _golden(learned: ResidualModel, golden: Mapping[str, list[Operation]]) -> dict[str, Any]:
    """The golden prediction: GPU -> operations, and what they are predicted to cost on it."""
    found = {}
    for gpu, operations in golden.items():
        predictions = AnyGpuPredictor(find_gpu(gpu), operations[0].mode, learned).predict(operations)
        found[gpu] = {
            "operations": [operation.to_dict() for operation in operations],
            "device_time_s": predictions.device_time_s.tolist(),
            "power_w": predictions.power_w.tolist(),
        }
    return found


def save_any_gpu(
    folder: str | Path, learned: ResidualModel, card: AnyGpuCard, golden: Mapping[str, list[Operation]]
) -> Path:
    """Write the entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        folder: Folder to write, such as zoo/any-gpu/boosting.
        learned: The residual model, just fitted.
        card: Card of the entry.
        golden: GPU -> operations of one mode for the golden prediction; the first eight are used.
    """
    facts, of_learned = learned.to_files()
    files = {**common_files(asdict(card), facts), **of_learned}
    shown = {gpu: operations[:GOLDEN_OPERATIONS] for gpu, operations in golden.items()}
    return write_files(folder, files, _golden(learned, shown), predictor=facts["predictor"])


def load_any_gpu(folder: str | Path) -> AnyGpuEntry:
    """Load the entry and check it.

    Raises:
        ZooError: The entry is missing, damaged, changed or of another format, or its golden prediction comes out
            differently.
    """
    entry, manifest, again = read_any_gpu(folder)
    golden = manifest["golden"]
    with refusing_damage(Path(folder)):
        pairs = [(again[gpu][name], golden[gpu][name]) for gpu in golden for name in ("device_time_s", "power_w")]
    require_agreement(Path(folder), manifest, pairs)
    return entry


def read_any_gpu(folder: str | Path) -> tuple[AnyGpuEntry, dict[str, Any], dict[str, Any]]:
    """Read the entry without comparing its golden prediction.

    Returns:
        The entry, its manifest, and the golden prediction as it comes out now.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    folder = Path(folder)
    manifest, files = checked_files(folder, NEEDED)
    with refusing_damage(folder):
        card = read_card(files)
        facts = read_facts(files)
        # Entries that were trained before have the names of the measured GPUs in their card alone.
        facts.setdefault("gpus", [str(row["gpu"]) for row in card["data"] if row["operations"]])
        learned = read_residual_model(facts, files)
        hosts = {mode: host_of(card["host"][mode]) for mode in MODES}
        network_errors = {
            mode: NetworkCalibration.of_errors(quantities, "networks of chips of which nothing was known")
            for mode, quantities in card["log_errors"].items()
            if quantities
        }
        device_errors = card.get("device_errors")
        calibration = (
            None if not device_errors else Calibration.of_device_errors(device_errors, card.get("power_errors") or {})
        )
        golden = manifest["golden"]
        if len(golden) > _MOST_GOLDEN_GPUS:
            raise damaged_entry("a golden prediction is of too many GPUs", len(golden), f"up to {_MOST_GOLDEN_GPUS}")
        again = _golden(learned, {gpu: golden_operations(value["operations"]) for gpu, value in golden.items()})
        entry = AnyGpuEntry(name_of(card["name"]), learned, hosts, network_errors, calibration)
        for gpu, value in golden.items():
            operations = golden_operations(value["operations"])
            smoke_test(entry.on(find_gpu(gpu), operations[0].mode), operations)
    return entry, manifest, again
