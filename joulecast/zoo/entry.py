"""Loads entries of any form, which their manifest names; writes those of a measured GPU.

Such an entry has what the loops that were measured on a GPU add to what all GPUs share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..errors import ZooError
from ..hardware import find_gpu
from ..operations.operation import Operation
from ..predictors.chip import ChipPart
from ..predictors.contract import INPUT_NAMES, Shared
from ..predictors.formats.numbers import number, require_features
from ..predictors.intervals.calibration import Calibration
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.networks.composition import MOST_NETWORK_STATIC_W, TF32_FACTORS, HostModel
from ..predictors.networks.prepared import NetworkPredictor
from ..predictors.physics.baseline import Baseline
from ..predictors.predictor import OperationPredictor
from ..predictors.regressors.fitted_trees import ONE_GPU_FORMS
from . import cards
from .files import LEFT_OUT, OPERATIONS, StoredEntry, json_bytes, parsed_json

if TYPE_CHECKING:
    from ..predictors.networks.on_cpu import CpuNetworkPredictor
    from .kernels_entry import KernelsEntry
    from .other_entries import AnyGpuEntry


def content_of_chip(
    chip: ChipPart,
    reader: str,
    host: HostModel,
    golden: Sequence[Operation],
    left_out: Mapping[str, Mapping[str, float]],
    network_errors: NetworkCalibration | None = None,
    trained_on: Collection[Operation] = (),
) -> cards.Content:
    """The content of an entry with what loops of a GPU add.

    Args:
        reader: Name of its recipe's predictor, one of ONE_GPU_FORMS.
        host: What a call costs the host inside a network.
        golden: Operations for the golden prediction, as `golden_sample` chooses them.
        left_out: Errors on operations, by which promotion compares entries.
        network_errors: Errors on networks that were left out, for intervals; None where no network was measured.
    """
    networks = None if network_errors is None else network_errors.to_dict()
    facts = {**chip.facts(), "host": host.to_dict(), "network_errors": networks}
    files = {
        LEFT_OUT: json_bytes(left_out),
        OPERATIONS: json_bytes([o.to_dict() for o in sorted(trained_on, key=lambda o: o.digest)]),
        **chip.time.to_files("time"),
        **chip.power.to_files("power"),
    }
    return cards.Content(reader, facts, files, _golden(chip, golden))


def _golden(chip: ChipPart, operations: Sequence[Operation]) -> dict[str, Any]:
    return cards.golden_of(operations, _alone(chip).predict(operations), "time_s", "power_w")


def _alone(chip: ChipPart) -> OperationPredictor:
    """The loops of a chip, with nothing but physics for what was not measured."""

    def shared() -> Shared:
        # Imported here, because golden predictions need no more than the loops.
        from ..predictors.model.shared import nothing_shared

        return nothing_shared()

    return OperationPredictor(chip.gpu, chip.mode, shared, {chip.mode: chip})


def read_own(stored: StoredEntry) -> tuple[NetworkPredictor, dict[str, Any]]:
    """The predictor of an entry, and its golden prediction as it comes out now."""
    facts = stored.facts
    require_features(facts["inputs"], INPUT_NAMES, stored.where)
    from_files = ONE_GPU_FORMS[stored.predictor].from_files
    chip = ChipPart(
        gpu=find_gpu(facts["gpu"]),
        mode=facts["mode"],
        baseline=Baseline.from_dict(facts["baseline"]),
        time=from_files(stored, "time"),
        power=from_files(stored, "power"),
        measured=frozenset(facts["measured"]),
        transferred=tuple(facts["transferred"]),
        calibration=None if facts.get("calibration") is None else Calibration.from_dict(facts["calibration"]),
        # Entries of GPUs without measured networks may lack what these teach.
        network_static_w=number(facts.get("network_static_w", 0.0), 0.0, MOST_NETWORK_STATIC_W),
        network_tf32_factor=number(facts.get("network_tf32_factor", 1.0), *TF32_FACTORS),
    )
    errors = facts.get("network_errors")
    predictor = NetworkPredictor(
        name=cards.name_of(stored.card["name"]),
        operations=_alone(chip),
        host=cards.host_of(facts["host"]),
        network_errors=None if errors is None else NetworkCalibration.from_dict(errors),
    )
    golden = cards.golden_operations(stored.golden["operations"])
    cards.smoke_test(predictor, golden)
    return predictor, _golden(chip, golden)


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
    """Read what explanations of an entry's predictions need. Raises ZooError: the entry is damaged."""
    files = StoredEntry.of(folder)
    with cards.refusing_damage(str(folder)):
        stored = parsed_json(files[OPERATIONS], "the operations of this zoo entry") if OPERATIONS in files else []
        operations = tuple(Operation.from_dict(value) for value in stored)
        names = ("time", "power")
        whole = all(f"{name}.ubj" in files for name in names)
        return Background(operations, {name: files[f"{name}.ubj"] for name in names} if whole else {})


Loaded: TypeAlias = "NetworkPredictor | AnyGpuEntry | KernelsEntry | CpuNetworkPredictor"
"""What an entry becomes when it is loaded."""
Form = TypeVar("Form")


def load_any(folder: str | Path) -> Loaded:
    """Load an entry with any kind of predictor, and check it.

    Raises ZooError: missing, damaged, changed, of another format, or of a predictor that this joulecast does not know;
    or its golden prediction comes out differently.
    """
    loaded, stored, again = read_entry(folder)
    cards.require_agreement(stored, again, stored.golden)
    return loaded


def load_entry(folder: str | Path, form: type[Form] = NetworkPredictor) -> Form:  # type: ignore[assignment]
    """Load an entry of one form, and check it. Raises ZooError: as for `load_any`, or the entry is of another form.

    Args:
        form: What it becomes when it is loaded: by default the predictor of one GPU.
    """
    loaded = load_any(folder)
    if not isinstance(loaded, form):
        raise ZooError(
            "this zoo entry is of another form",
            given=f"{folder}: {type(loaded).__name__}",
            allowed=form.__name__,
            hint="`joulecast zoo show` describes an entry",
        )
    return loaded


def read_entry(folder: str | Path) -> tuple[Loaded, StoredEntry, dict[str, Any]]:
    """Read an entry without comparing its golden prediction.

    Returns what it becomes, its files, and the golden prediction as it comes out now. Raises ZooError: the entry is
    missing, damaged, changed, or of another format.
    """
    stored = StoredEntry.of(folder)
    predictor = stored.predictor
    readers: dict[str, Callable[[StoredEntry], tuple[Any, dict[str, Any]]]] = dict.fromkeys(ONE_GPU_FORMS, read_own)
    if predictor not in readers:
        # Imported here, because half of the package would have to be imported for a GPU with a predictor of its own.
        from ..predictors.fitting.fit import ANY_GPU_FORMS
        from .kernels_entry import KERNELS_PREDICTOR, read_kernels
        from .other_entries import CPU_PREDICTOR, read_any_gpu, read_cpu

        readers |= dict.fromkeys(ANY_GPU_FORMS, read_any_gpu)
        readers |= {KERNELS_PREDICTOR: read_kernels, CPU_PREDICTOR: read_cpu}
    if predictor not in readers:
        raise ZooError(
            "this version of joulecast does not know the predictor of this zoo entry",
            given=predictor,
            allowed=", ".join(readers),
            hint="update joulecast",
        )
    with cards.refusing_damage(stored.where):
        loaded, again = readers[predictor](stored)
    return loaded, stored, again
