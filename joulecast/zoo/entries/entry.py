"""A zoo entry at rest: a folder with a card, a predictor, a manifest and a golden prediction.

Loading runs no code, because entries hold JSON and arrays only. Every file is compared with its sha256 before it is
parsed. Afterwards a small stored prediction is made again. So neither a changed byte nor a library that computes
something else goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ZooError, damaged_entry
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...predictors.formats.numbers import require_features
from ...predictors.intervals.calibration import Calibration
from ...predictors.intervals.network_calibration import NetworkCalibration
from ...predictors.networks.network_predictor import NetworkPredictor
from ...predictors.networks.prediction import COMPOSITIONS
from ...predictors.physics.baseline import Baseline
from ...predictors.predictor import INPUT_NAMES, OperationPredictor
from ...predictors.regressors.forms import ONE_GPU_FORMS
from .card_values import host_of, name_of, network_static_of, network_tf32_of
from .common_files import CARD, NEEDED, common_files, read_card, read_facts
from .files import checked_files, json_bytes, parsed_json, predictor_of, write_files
from .golden import GOLDEN_OPERATIONS, golden_operations, refusing_damage, require_agreement, smoke_test
from .left_out import LEFT_OUT

OPERATIONS = "operations.json"
"""The operations that a predictor was trained on, without their measurements, which are the data of others."""


@dataclass(frozen=True)
class ModelCard:
    """What a user should know about a predictor.

    Args:
        name: "gpu/entry", as `predictor=` takes it.
        gpu, mode: The GPU and the mode that it predicts for.
        precisions: Precisions that a user may ask for and in which all operations are covered.
        predictor: Name of the recipe's predictor.
        recipe: Settings of the recipe.
        data: Source, licence, sensor and limits of the dataset, and the sha256 of its card.
        splits: How the errors below were made.
        operation_errors: Campaign -> summary, from cross-validation.
        network_errors: Network -> relative errors of time and energy when left out.
        host: Host costs of a call inside a network, see `HostModel`.
        composition: The default composition, "overlap" or "sum".
        coverage: For each split, how many held-out cases lay within their 90 % interval.
        limits: What it cannot do.
        created: Date that it was made on.
        licence: Licence of the predictor.
        kind_errors: Campaign -> kind -> count, median and mean error of time and of power, from cross-validation.
        provenance: Commit of the code that trained it.
    """

    name: str
    gpu: str
    mode: str
    precisions: tuple[str, ...]
    predictor: str
    recipe: Mapping[str, Any]
    data: Mapping[str, Any]
    splits: str
    operation_errors: Mapping[str, Mapping[str, float]]
    network_errors: Mapping[str, Mapping[str, float]]
    host: Mapping[str, Any]
    composition: str
    coverage: tuple[Mapping[str, Any], ...] = ()
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    kind_errors: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)


def save_entry(
    folder: str | Path,
    predictor: OperationPredictor,
    card: ModelCard,
    golden: list[Operation],
    left_out: Mapping[str, Mapping[str, float]],
    network_errors: NetworkCalibration | None = None,
    trained_on: Collection[Operation] = (),
) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        folder: Folder to write, such as zoo/a30/forest-inference.
        predictor: The predictor, with regressors that were just fitted.
        card: Card of the entry.
        golden: Operations for the golden prediction; the first eight are used.
        left_out: Errors of single operations in cross-validation, to compare predictors by.
        network_errors: Errors on networks that were left out, for intervals; None where no network was measured.
        trained_on: Operations of the training data, without their measurements; for explanations.
    """
    facts = {
        **predictor.facts(),
        "network_errors": None if network_errors is None else network_errors.to_dict(),
    }
    files = {
        **common_files(asdict(card), facts),
        LEFT_OUT: json_bytes(left_out),
        OPERATIONS: json_bytes([o.to_dict() for o in sorted(trained_on, key=lambda o: o.digest)]),
        **predictor.time.to_files("time"),
        **predictor.power.to_files("power"),
    }
    return write_files(folder, files, _golden(predictor, golden[:GOLDEN_OPERATIONS]), predictor=card.predictor)


def _golden(predictor: OperationPredictor, operations: list[Operation]) -> dict[str, Any]:
    """The golden prediction: a few operations, and what they are predicted to cost."""
    predictions = predictor.predict(operations)
    return {
        "operations": [operation.to_dict() for operation in operations],
        "time_s": predictions.time_s.tolist(),
        "power_w": predictions.power_w.tolist(),
    }


def load_card(folder: Path) -> dict[str, Any]:
    """Read the card of an entry, checked against its manifest.

    Raises:
        ZooError: The entry is damaged.
    """
    card = read_card(checked_files(folder, {CARD})[1])
    if not isinstance(card, dict):
        raise ZooError("the card of this zoo entry is damaged", given=str(folder), hint="pull it again")
    return card


def load_entry(folder: str | Path) -> NetworkPredictor:
    """Load an entry and check it.

    Raises:
        ZooError: The entry is missing, damaged, changed or of another format, or its golden prediction comes out
            differently.
    """
    predictor, manifest, again = read_entry(folder)
    with refusing_damage(Path(folder)):
        pairs = [(again[name], manifest["golden"][name]) for name in ("time_s", "power_w")]
    require_agreement(Path(folder), manifest, pairs)
    return predictor


def read_entry(folder: str | Path) -> tuple[NetworkPredictor, dict[str, Any], dict[str, Any]]:
    """Read an entry without comparing its golden prediction.

    Returns:
        Its predictor, its manifest, and the golden prediction as it comes out now.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    folder = Path(folder)
    manifest, files = checked_files(folder, NEEDED)
    with refusing_damage(folder):
        card = read_card(files)
        facts = read_facts(files)
        require_features(facts["inputs"], INPUT_NAMES, folder)
        from_files = ONE_GPU_FORMS[predictor_of(manifest)].from_files
        predictor = OperationPredictor(
            gpu=find_gpu(facts["gpu"]),
            mode=facts["mode"],
            baseline=Baseline.from_dict(facts["baseline"]),
            time=from_files(files, "time"),
            power=from_files(files, "power"),
            measured=frozenset(facts["measured"]),
            transferred=tuple(facts["transferred"]),
            calibration=None if facts.get("calibration") is None else Calibration.from_dict(facts["calibration"]),
            network_static_w=network_static_of(facts),
            network_tf32_factor=network_tf32_of(facts),
        )
        composition = card["composition"]
        if composition not in COMPOSITIONS:
            raise damaged_entry(
                "the card of this zoo entry names an unknown composition", composition, ", ".join(COMPOSITIONS)
            )
        network_predictor = NetworkPredictor(
            name=name_of(card["name"]),
            operations=predictor,
            host=host_of(card["host"]),
            composition=composition,
            network_errors=None
            if facts.get("network_errors") is None
            else NetworkCalibration.from_dict(facts["network_errors"]),
        )
        operations = golden_operations(manifest["golden"]["operations"])
        smoke_test(network_predictor, operations)
        return network_predictor, manifest, _golden(predictor, operations)


@dataclass(frozen=True)
class Background:
    """What explanations need besides the predictor.

    Args:
        operations: Operations that it was trained on; empty where they are not stored.
        native: "time" and "power" -> boosted trees as XGBoost stores them; empty for other recipes.
    """

    operations: tuple[Operation, ...]
    native: Mapping[str, bytes]


def load_background(folder: Path) -> Background:
    """Read what explanations of an entry's predictions need.

    Raises:
        ZooError: The entry is damaged.
    """
    _, files = checked_files(folder, NEEDED)
    with refusing_damage(folder):
        stored = parsed_json(files[OPERATIONS], "the operations of this zoo entry") if OPERATIONS in files else []
        operations = tuple(Operation.from_dict(value) for value in stored)
        names = ("time", "power")
        whole = all(f"{name}.ubj" in files for name in names)
        return Background(operations, {name: files[f"{name}.ubj"] for name in names} if whole else {})
