"""The zoo entry that serves every GPU without one of its own, in both modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ZooError
from ..hardware import GPU, find_gpu
from ..operations import Operation
from ..predictors.any_gpu import AnyGpuPredictor, BoostedRegressor, Learned
from ..predictors.composition import HostModel
from ..predictors.prediction import NetworkPredictor
from ..predictors.relative import RELATIVE_NAMES
from ..predictors.serving import regressor_file, stored_regressor, trees_of
from .files import checked_files, json_bytes, parsed_json, write_files
from .golden import GOLDEN_OPERATIONS, golden_operations, refusing_damage, require_agreement
from .rendering import any_gpu_markdown

PREDICTOR = "boosting"

_FILES = ("card.json", "predictor.json")
_MOST_GOLDEN_GPUS = 64


@dataclass(frozen=True)
class AnyGpuCard:
    """What a user should know about a predictor for any GPU.

    Args:
        name: As `predictor=` takes it.
        recipe: Settings of the trees.
        data: What it was trained on: one description per dataset.
        splits: How the errors below were made.
        operation_errors: Split ("folds", "gpu left out") -> GPU -> kind and mode -> median and mean error of device
            time.
        network_errors: Network -> relative errors of time, energy and power, its GPU left out.
        host: Mode -> see HostModel.
        log_errors: Mode -> quantity -> sorted absolute log errors on networks, for intervals.
        limits: What it cannot do.
        created: Date.
        licence: Of the predictor.
    """

    name: str
    recipe: Mapping[str, Any]
    data: tuple[Mapping[str, Any], ...]
    splits: str
    operation_errors: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
    network_errors: Mapping[str, Mapping[str, float]]
    host: Mapping[str, Mapping[str, Any]]
    log_errors: Mapping[str, Mapping[str, tuple[float, ...]]]
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    predictor: str = field(default=PREDICTOR)


@dataclass(frozen=True)
class AnyGpuEntry:
    """A loaded entry, to be used on any GPU."""

    name: str
    learned: Learned
    hosts: Mapping[str, HostModel]
    log_errors: Mapping[str, Mapping[str, tuple[float, ...]]]

    def on(self, gpu: GPU, mode: str) -> NetworkPredictor:
        """The predictor of a GPU and mode."""
        return NetworkPredictor(
            name=self.name,
            operations=AnyGpuPredictor(gpu, mode, self.learned),
            host=self.hosts[mode],
            log_errors=self.log_errors.get(mode, {}),
            any_gpu=True,
        )


def _golden(learned: Learned, golden: Mapping[str, list[Operation]]) -> dict[str, Any]:
    """A small prediction on each of some GPUs."""
    found = {}
    for gpu, operations in golden.items():
        predictions = AnyGpuPredictor(find_gpu(gpu), operations[0].mode, learned).predict(operations)
        found[gpu] = {
            "operations": [operation.to_json() for operation in operations],
            "device_time_s": predictions.device_time_s.tolist(),
            "power_w": predictions.power_w.tolist(),
        }
    return found


def save_any_gpu(folder: str | Path, learned: Learned, card: AnyGpuCard, golden: Mapping[str, list[Operation]]) -> Path:
    """Write the entry; what lay in its place is replaced once the new one is whole.

    Args:
        folder: Where, such as zoo/any-gpu/boosting.
        learned: With boosted trees as its regressor.
        card: Its card.
        golden: GPU -> operations of one mode for the golden prediction; the first eight are used.
    """
    if not isinstance(learned.time, BoostedRegressor):
        raise ZooError("only a predictor that was just trained can be stored", given=type(learned.time).__name__)
    files = {
        "card.json": json_bytes(asdict(card)),
        "README.md": any_gpu_markdown(asdict(card)).encode(),
        "predictor.json": json_bytes(learned.to_json()),
        regressor_file("time"): trees_of(learned.time).to_bytes(),
        # The native form, to train on from.
        "time.ubj": bytes(learned.time.model.get_booster().save_raw("ubj")),
    }
    shown = {gpu: operations[:GOLDEN_OPERATIONS] for gpu, operations in golden.items()}
    return write_files(folder, files, _golden(learned, shown), predictor=PREDICTOR)


def load_any_gpu(folder: str | Path) -> AnyGpuEntry:
    """Load the entry and check it.

    Raises:
        ZooError: Missing, damaged, changed, of another format, or predicting otherwise than when it was made.
    """
    folder = Path(folder)
    manifest, files = checked_files(folder, _FILES)
    with refusing_damage(folder):
        card = parsed_json(files["card.json"], "the card of this zoo entry")
        facts = parsed_json(files["predictor.json"], "the predictor of this zoo entry")
        if facts["inputs"] != list(RELATIVE_NAMES):
            raise ZooError("this zoo entry was trained on other features", given=str(folder), hint="train it again")
        learned = Learned.from_json(facts, stored_regressor(files, "time", len(RELATIVE_NAMES)))
        hosts = {mode: HostModel.from_json(value) for mode, value in card["host"].items()}
        log_errors = {
            mode: {quantity: tuple(values) for quantity, values in quantities.items()}
            for mode, quantities in card["log_errors"].items()
        }
        golden = manifest["golden"]
        if len(golden) > _MOST_GOLDEN_GPUS:
            raise ZooError("a golden prediction is larger than any can be", given=len(golden))
        again = _golden(learned, {gpu: golden_operations(value["operations"]) for gpu, value in golden.items()})
        pairs = [(again[gpu][name], golden[gpu][name]) for gpu in golden for name in ("device_time_s", "power_w")]
    require_agreement(folder, manifest, pairs)
    return AnyGpuEntry(card["name"], learned, hosts, log_errors)
