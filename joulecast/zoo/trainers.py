"""How recipes of each class are trained and validated: on a GPU or CPU in a mode, or on all GPUs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DatasetError, InputError
from ..hardware.host import is_cpu
from ..operations.operation import MODES, Operation, require_mode
from ..predictors.contract import Networks
from ..predictors.evaluation import any_gpu, one_gpu
from ..predictors.evaluation.errors import Validation, network_log_errors
from ..predictors.evaluation.left_out import errors_on_repeats
from ..predictors.fitting.fit import fit_chip, fit_cpu, fit_on_all, fit_serial, learn_from_networks, quickest_networks
from ..predictors.fitting.forms import ANY_GPU_FORMS, predictor_of
from ..predictors.intervals.calibration import Closeness
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.measured import device_rows
from ..predictors.model.shared import AnyGpuPredictor, SharedByAll, chip_alone
from ..predictors.networks.composition import HostModel
from ..predictors.networks.on_cpu import CpuNetworkPredictor
from ..predictors.networks.predictor import NetworkPredictor
from ..predictors.recipes import Recipe
from ..predictors.regressors.fitted_trees import ONE_GPU_FORMS
from .cards import ModelCard
from .catalogue import find_kernels
from .entry import load_entry
from .files import FACTS, LEFT_OUT, OPERATIONS, StoredEntry, json_bytes
from .golden import Sample, chosen
from .kinds import CPU_PREDICTOR
from .limits import ANY_GPU_LIMITS, limits_of, limits_of_cpu
from .promotion import operations_left_out
from .training import Loaded, Task, Trained, all_networks, card_of


class Trainer(NamedTuple):
    """How recipes of a class are trained and validated.

    Args:
        validate: Finds errors on what is left out. It raises DatasetError if there are too few usable operations.
        fit: Fits everything, learns intervals from the validation, and says on the card what was fitted.
        splits: What is left out in validations.
        about, file: What reports are about, and the name of their file.
    """

    validate: Callable[[Task], Validation]
    fit: Callable[[Task, Validation], Trained]
    splits: str
    about: str = "predictions"
    file: str = "REPORT.md"


def _fit_own(task: Task, validation: Validation) -> Trained:
    dataset, mode, recipe, networks = task.of_mode
    chip = fit_chip(dataset, mode, recipe)
    operations = {m.operation for m in dataset.usable(mode)}
    calibration, network_errors = one_gpu.calibrated(
        validation, Closeness.of(operations), errors_on_repeats(dataset, chip)
    )
    chip = replace(chip, calibration=calibration)
    if network_errors is None and calibration is not None:
        network_errors = task.borrowed
    host = HostModel.prior(mode)
    if len(validation.networks):
        measured = [(m, networks[m]) for m in dataset.networks_with_energy(mode)]
        chip, host = learn_from_networks(chip, measured, mode)
    measured_in = {operation.precision for operation in operations}
    # Every kind that was measured at all is covered in these. Where there is no TF32, the default is fp32.
    default = "fp32" in measured_in and ("tf32" in measured_in or "tf32" not in chip.gpu.peak_flops)
    precisions = (*(["default"] if default else []), *(p for p in ("fp32", "fp16", "bf16") if p in measured_in))
    files = {
        LEFT_OUT: json_bytes(operations_left_out(validation)),
        OPERATIONS: json_bytes([o.to_dict() for o in sorted(operations, key=lambda o: o.digest)]),
    }
    predictor = NetworkPredictor(task.name, chip_alone(chip), host, network_errors)
    told = {**_told_of_device(task, validation, len(chip.measured), precisions), "limits": limits_of(chip, host)}
    return Trained(predictor, validation, _card(task, validation, told), [Sample(chosen(operations))], files)


def _fit_cpu(task: Task, validation: Validation) -> Trained:
    dataset, mode, recipe, networks = task.of_mode
    operations = fit_cpu(dataset, mode, recipe)
    serial = fit_serial(operations, [(m, networks[m]) for m in quickest_networks(dataset.usable_networks(mode))])
    precisions = tuple(dict.fromkeys(["default", *(group.split()[1] for group in operations.coverage)]))
    told = _told_of_device(task, validation, len(operations.measured), precisions)
    told["limits"] = tuple(limits_of_cpu(dataset, operations, serial))
    errors = network_log_errors(validation.networks)
    predictor = CpuNetworkPredictor(task.name, operations, serial, errors, predictor_of(recipe))
    samples = [Sample(chosen({m.operation for m in dataset.usable(mode)}))]
    files = {LEFT_OUT: json_bytes(operations_left_out(validation))}
    return Trained(predictor, validation, _card(task, validation, told), samples, files, kind=CPU_PREDICTOR)


def _told_of_device(task: Task, validation: Validation, operations: int, precisions: tuple[str, ...]) -> dict[str, Any]:
    """What the card of a GPU or CPU says, whose predictor was trained on so many operations."""
    (loaded,) = task.loaded
    card = loaded.dataset.card
    counts = {"operations": operations, "networks": len(set(validation.networks.of))}
    measured = {"measured": list(card.measured), "limits": list(card.limits)}
    return {
        "gpu": card.gpu,
        "mode": task.mode,
        "precisions": precisions,
        "promise": f"Predicts operations and networks in {task.mode} on {card.gpu}, precision "
        f"{' or '.join(precisions)}.",
        "data": ({**loaded.described(), **counts, **measured},),
    }


def _validate_any_gpu(task: Task) -> Validation:
    networks, kernels = all_networks(task.loaded), find_kernels()
    return any_gpu.validate_any_gpu(task.data, networks, task.recipe, kernels=kernels, quick=task.quick)


def _fit_any_gpu(task: Task, validation: Validation) -> Trained:
    networks, kernels = all_networks(task.loaded), find_kernels()
    learned = fit_on_all(task.data, networks, task.recipe, kernels)
    rows = [row for dataset in task.data for row in device_rows(dataset)]
    measured: dict[str, set[Operation]] = {}
    for row in [row for row in rows if row.operation.mode == "inference"] or rows:
        measured.setdefault(row.gpu.name, set()).add(row.operation)
    hosts = any_gpu.fit_hosts(SharedByAll(learned, kernels=kernels), networks)
    predictor = AnyGpuPredictor(task.name, learned, hosts, any_gpu.interval_errors(validation))
    told = {
        "limits": ANY_GPU_LIMITS,
        "promise": "Predicts time and power of operations and networks, in inference and training, on any GPU with a "
        "data sheet and at any clock.",
        "data": tuple(each.described() for each in task.loaded),
    }
    samples = [Sample(chosen(each), gpu) for gpu, each in measured.items()]
    return Trained(predictor, validation, _card(task, validation, told), samples)


_OWN = Trainer(lambda task: one_gpu.validate(*task.of_mode), _fit_own, one_gpu.SPLITS)
_CPU = Trainer(
    lambda task: one_gpu.validate_cpu(*task.of_mode), _fit_cpu, one_gpu.CPU_SPLITS, "predictions for CPUs", "CPUS.md"
)
_ANY_GPU = Trainer(_validate_any_gpu, _fit_any_gpu, any_gpu.SPLITS, "predictions for any GPU")

TRAINERS: Mapping[type[Recipe], Trainer] = {
    **{form.settings: _OWN for form in ONE_GPU_FORMS.values()},
    **{form.settings: _ANY_GPU for form in ANY_GPU_FORMS.values()},
}
"""Class of recipe -> how it is trained: on one GPU's own measurements, or on those of many GPUs."""


def trainer_of(task: Task) -> Trainer:
    """How a task is done: recipes for one GPU train CPUs in a way of their own."""
    trainer = TRAINERS[type(task.recipe)]
    return _CPU if trainer is _OWN and is_cpu(task.data[0].card.gpu) else trainer


def _card(task: Task, validation: Validation, told: Mapping[str, Any]) -> ModelCard:
    """The card of what was trained, with what else is told of it."""
    trainer = trainer_of(task)
    quickly = f" {any_gpu.QUICKLY}" if task.quick and trainer is _ANY_GPU else ""
    splits = f"{trainer.splits}{quickly}"
    return card_of(task.name, predictor_of(task.recipe), task.recipe, validation, splits=splits, **told)


def train(task: Task) -> Trained:
    """Validate a recipe, then fit it on everything. Raises DatasetError: too few usable operations."""
    trainer = trainer_of(task)
    return trainer.fit(task, trainer.validate(task))


def train_each(tasks: Sequence[Task]) -> Iterator[Trained]:
    """Train one after the other; see `train`.

    Where no network was measured on a GPU, the scale of its intervals is that of another GPU, which is trained first.
    """
    borrowed: dict[str, NetworkCalibration] = {}
    for task in sorted(tasks, key=lambda task: trainer_of(task) is _OWN and not task.of_mode[-1]):
        trained = train(task._replace(borrowed=borrowed.get(task.mode)))
        if trainer_of(task) is _OWN and trained.predictor.network_errors is not None:
            borrowed.setdefault(task.mode, trained.predictor.network_errors)
        yield trained


def tasks_of(recipe: Recipe, loaded: Sequence[Loaded], modes: Sequence[str], quick: bool = False) -> list[list[Task]]:
    """What a recipe is trained on: tasks for CPUs, then those for GPUs, as far as there are any.

    An empty list of modes stands for all modes in which operations were measured.

    Raises UnknownNameError: a mode does not exist. Raises InputError: a recipe for any GPU, and datasets of CPUs only.
    Raises DatasetError: a recipe for one GPU, and no dataset has a usable operation.
    """
    on_cpus = [each for each in loaded if is_cpu(each.dataset.card.gpu)]
    on_gpus = [each for each in loaded if each not in on_cpus]
    if TRAINERS[type(recipe)] is _OWN:
        return [_by_mode(recipe, some, modes) for some in (on_cpus, on_gpus) if some]
    if not on_gpus:
        raise InputError(
            "a predictor for any GPU is trained on measurements of GPUs",
            given=", ".join(each.dataset.card.gpu for each in loaded),
            allowed=f"for a CPU a recipe of {', '.join(ONE_GPU_FORMS)}",
            hint="`joulecast train --dataset FOLDER --recipe forest`",
        )
    return [[Task(on_gpus, recipe, quick=quick)]]


def _by_mode(recipe: Recipe, loaded: Sequence[Loaded], asked: Sequence[str]) -> list[Task]:
    for mode in asked:
        require_mode(mode)
    found = [
        Task([each], recipe, mode)
        for each in loaded
        for mode in MODES
        if mode in asked or (not asked and each.dataset.usable(mode))
    ]
    if not found:
        raise DatasetError(
            "no usable operation was measured, and a GPU's own predictor is trained on operations",
            given=", ".join(f"{each.folder}, {len(each.dataset.networks)} networks" for each in loaded),
            allowed="a dataset with operations",
            hint="`joulecast datasets show FOLDER` describes a dataset; `joulecast collect` measures operations",
        )
    return found


def renew_hosts(folder: Path, networks: Networks) -> None:
    """Learn again what a call costs the host inside a network, for an entry for any GPU that was trained with these.

    Modes in which none was measured stay. Raises ZooError: the entry is missing, damaged, or of another format.
    """
    entry = load_entry(folder, AnyGpuPredictor)
    measured = {measurement.mode for _, measurement, _ in networks}
    learned = any_gpu.fit_hosts(entry.shared, networks)
    hosts = {**entry.hosts, **{mode: host for mode, host in learned.items() if mode in measured}}
    stored = StoredEntry.of(folder)
    stored.replace({FACTS: json_bytes({**stored.facts, "hosts": {mode: h.to_dict() for mode, h in hosts.items()}})})
