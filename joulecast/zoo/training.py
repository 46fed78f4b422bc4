"""From measurements and a recipe to a zoo entry: validate, fit on everything, describe.

Kernels have a file of their own (kernels_training.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ..datasets import Dataset, NetworkMeasurement, fingerprint, load
from ..extraction import network_of
from ..hardware import Device, find_gpu
from ..operations.network import Network
from ..operations.operation import MODES, Operation
from ..predictors.contract import Networks
from ..predictors.evaluation import any_gpu, one_gpu
from ..predictors.evaluation.errors import Validation, network_log_errors
from ..predictors.evaluation.left_out import errors_on_repeats
from ..predictors.fitting.fit import fit_chip, fit_cpu, fit_on_all, fit_serial, learn_from_networks, quickest_networks
from ..predictors.fitting.forms import predictor_of
from ..predictors.intervals.calibration import Closeness
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.measured import device_rows
from ..predictors.model.any_gpu import AnyGpuPredictor, LeftOut
from ..predictors.model.shared import SharedByAll, chip_alone
from ..predictors.networks.composition import HostModel
from ..predictors.networks.on_cpu import CpuNetworkPredictor
from ..predictors.networks.prepared import NetworkPredictor
from ..predictors.recipes import Recipe
from .cards import ModelCard, git_commit
from .catalogue import entry_name, find_kernels
from .entry import load_entry, save_entry
from .files import FACTS, LEFT_OUT, OPERATIONS, StoredEntry, json_bytes
from .golden import Sample, chosen
from .kinds import CPU_PREDICTOR
from .limits import ANY_GPU_LIMITS, limits_of, limits_of_cpu
from .promotion import operations_left_out


@dataclass(frozen=True)
class Loaded:
    """A dataset, the folder that it was loaded from, and the operations of its networks."""

    folder: Path
    dataset: Dataset
    networks: Mapping[NetworkMeasurement, Network] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Load a dataset, and extract the operations of networks where it does not list them."""
        dataset = load(folder)
        networks = {
            m: m.operations or network_of(m.network, m.input_shape, mode=m.mode, precision=m.precision)
            for mode in MODES
            for m in dataset.usable_networks(mode)
        }
        return cls(folder, dataset, networks)

    def in_mode(self, mode: str) -> dict[NetworkMeasurement, Network]:
        """Its networks in a mode."""
        return {m: network for m, network in self.networks.items() if m.mode == mode}

    def described(self) -> dict[str, Any]:
        """What cards say of it."""
        card = self.dataset.card
        return {
            "gpu": card.gpu,
            "clock_mhz": card.clock_mhz,
            "source": card.source,
            "licence": card.licence,
            "sensor": card.sensor,
            "operations": len({m.operation for m in self.dataset.measurements}),
            "networks": len(self.dataset.networks),
            "sha256": fingerprint(self.folder),
        }


def all_networks(loaded: Sequence[Loaded]) -> Networks:
    """The networks of all datasets that were measured with their power."""
    return [
        (find_gpu(each.dataset.card.gpu), m, network)
        for each in loaded
        for m, network in each.networks.items()
        if m.energy_j is not None
    ]


@dataclass(frozen=True)
class Trained:
    """What was trained, with its validation and card, ready to be stored.

    Args:
        predictor: A predictor of this kind.
        samples: Operations for the golden prediction.
        files: Further files of its entry, by name.
        kind: What its manifest names as its predictor; empty for what the card names.
    """

    predictor: Any
    validation: Validation
    card: ModelCard
    samples: Sequence[Sample]
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = ""

    def save(self, zoo: Path) -> Path:
        """Write the entry into a zoo folder."""
        folder = zoo / self.card.name
        return save_entry(folder, self.card, self.predictor, self.samples, self.files, kind=self.kind)


def card_of(name: str, predictor: str, recipe: Recipe, validation: Validation, **more: Any) -> ModelCard:
    """The card of an entry, with the errors of its validation."""
    return ModelCard(
        name=name,
        predictor=predictor,
        recipe=recipe.to_dict(),
        errors=validation.rows(),
        networks=validation.networks.cases(),
        coverage=[asdict(row) for row in validation.coverage if not row.group.startswith(("family", "host", "GPU"))],
        created=datetime.now(UTC).date().isoformat(),
        provenance={"git_commit": git_commit()},
        **more,
    )


def train(loaded: Loaded, mode: str, recipe: Recipe, borrowed: NetworkCalibration | None = None) -> Trained:
    """Validate a recipe on a dataset, then fit it on everything. Raises DatasetError: too few usable operations.

    Args:
        borrowed: Errors on another GPU's networks, in units of difficulty, for a GPU on which no network was measured.
    """
    dataset, networks = loaded.dataset, loaded.in_mode(mode)
    validation = one_gpu.validate(dataset, mode, recipe, networks)
    chip = fit_chip(dataset, mode, recipe)
    operations = {m.operation for m in dataset.usable(mode)}
    calibration, network_errors = one_gpu.calibrated(
        validation, Closeness.of(operations), errors_on_repeats(dataset, chip)
    )
    chip = replace(chip, calibration=calibration)
    if network_errors is None and calibration is not None:
        network_errors = borrowed
    host = HostModel.prior(mode)
    if len(validation.networks):
        measured = [(m, networks[m]) for m in dataset.networks_with_energy(mode)]
        chip, host = learn_from_networks(chip, measured, mode)
    measured_in = {operation.precision for operation in operations}
    # Every kind that was measured at all is covered in these. Where there is no TF32, the default is fp32.
    default = "fp32" in measured_in and ("tf32" in measured_in or "tf32" not in chip.gpu.peak_flops)
    precisions = (*(["default"] if default else []), *(p for p in ("fp32", "fp16", "bf16") if p in measured_in))
    sentences = {"splits": one_gpu.SPLITS, "limits": limits_of(chip, host)}
    card = _card_of_device(loaded, mode, recipe, validation, chip.gpu, len(chip.measured), precisions, **sentences)
    files = {
        LEFT_OUT: json_bytes(operations_left_out(validation)),
        OPERATIONS: json_bytes([o.to_dict() for o in sorted(operations, key=lambda o: o.digest)]),
    }
    predictor = NetworkPredictor(card.name, chip_alone(chip), host, network_errors)
    return Trained(predictor, validation, card, [Sample(chosen(operations))], files)


def _card_of_device(
    loaded: Loaded,
    mode: str,
    recipe: Recipe,
    validation: Validation,
    device: Device,
    operations: int,
    precisions: tuple[str, ...],
    **sentences: Any,
) -> ModelCard:
    """The card of an entry of one GPU or CPU, which was trained on so many operations."""
    card, predictor = loaded.dataset.card, predictor_of(recipe)
    counts = {"operations": operations, "networks": len(set(validation.networks.of))}
    measured = {"measured": list(card.measured), "limits": list(card.limits)}
    return card_of(
        entry_name(device, recipe.entry or predictor, mode),
        predictor,
        recipe,
        validation,
        gpu=card.gpu,
        mode=mode,
        precisions=precisions,
        promise=f"Predicts operations and networks in {mode} on {card.gpu}, precision {' or '.join(precisions)}.",
        data=({**loaded.described(), **counts, **measured},),
        **sentences,
    )


def train_any_gpu(loaded: Sequence[Loaded], recipe: Recipe, *, quick: bool = False) -> Trained:
    """Validate a recipe on the measurements of many GPUs, then fit it on everything.

    Raises DatasetError: too few device times.

    Args:
        quick: Whether to test on one fold and a few chips only, see `validate_any_gpu`.
    """
    data, networks, kernels = [each.dataset for each in loaded], all_networks(loaded), find_kernels()
    validation = any_gpu.validate_any_gpu(data, networks, recipe, kernels=kernels, quick=quick)
    learned = fit_on_all(data, networks, recipe, kernels)
    card = card_of(
        f"any-gpu/{recipe.entry or predictor_of(recipe)}",
        predictor_of(recipe),
        recipe,
        validation,
        splits=f"{any_gpu.SPLITS} {any_gpu.QUICKLY}" if quick else any_gpu.SPLITS,
        limits=ANY_GPU_LIMITS,
        promise="Predicts time and power of operations and networks, in inference and training, on any GPU with a data "
        "sheet and at any clock.",
        data=tuple(each.described() for each in loaded),
    )
    rows = [row for dataset in data for row in device_rows(dataset)]
    measured: dict[str, set[Operation]] = {}
    for row in [row for row in rows if row.operation.mode == "inference"] or rows:
        measured.setdefault(row.gpu.name, set()).add(row.operation)
    hosts = any_gpu.fit_hosts(SharedByAll(learned, kernels=kernels), networks)
    predictor = AnyGpuPredictor(card.name, learned, hosts, LeftOut(any_gpu.interval_errors(validation)))
    return Trained(predictor, validation, card, [Sample(chosen(each), gpu) for gpu, each in measured.items()])


def renew_hosts(folder: Path, networks: Networks) -> None:
    """Learn again what a call costs the host inside a network, for an entry for any GPU; modes without one stay.

    Raises ZooError: the entry is missing, damaged, changed, or of another format.

    Args:
        networks: The measured networks that it was trained with.
    """
    entry = load_entry(folder, AnyGpuPredictor)
    measured = {measurement.mode for _, measurement, _ in networks}
    learned = any_gpu.fit_hosts(entry.shared, networks)
    hosts = {**entry.hosts, **{mode: host for mode, host in learned.items() if mode in measured}}
    stored = StoredEntry.of(folder)
    stored.replace({FACTS: json_bytes({**stored.facts, "hosts": {mode: h.to_dict() for mode, h in hosts.items()}})})


def train_cpu(loaded: Loaded, mode: str, recipe: Recipe) -> Trained:
    """Validate a recipe on a dataset, then fit it on everything. Raises DatasetError: too few usable operations."""
    dataset, networks = loaded.dataset, loaded.in_mode(mode)
    validation = one_gpu.validate_cpu(dataset, mode, recipe, networks)
    operations = fit_cpu(dataset, mode, recipe)
    measured = quickest_networks(dataset.usable_networks(mode))
    serial = fit_serial(operations, [(m, networks[m]) for m in measured])
    precisions = tuple(dict.fromkeys(["default", *(group.split()[1] for group in operations.coverage)]))
    sentences = {"splits": one_gpu.CPU_SPLITS, "limits": tuple(limits_of_cpu(dataset, operations, serial))}
    count = len(operations.measured)
    card = _card_of_device(loaded, mode, recipe, validation, operations.cpu, count, precisions, **sentences)
    errors = network_log_errors(validation.networks)
    predictor = CpuNetworkPredictor(card.name, operations, serial, errors, card.predictor)
    samples = [Sample(chosen({m.operation for m in dataset.usable(mode)}))]
    return Trained(predictor, validation, card, samples, kind=CPU_PREDICTOR)
