"""From the dataset of a CPU and a recipe to a zoo entry: validate, fit on everything, describe."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..datasets import Dataset, NetworkMeasurement, fingerprint
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.cpu.fit import fit_cpu, fit_serial, quickest_networks
from ..predictors.cpu.network import COMPOSITION, CpuNetworkPredictor
from ..predictors.evaluation.cpu import SPLITS, CpuValidation, validate_cpu
from ..predictors.fitting.fit import predictor_of
from ..predictors.recipes import Recipe
from .catalogue import entry_name
from .entries.cpu_entry import save_cpu_entry
from .entries.entry import ModelCard
from .entries.golden import golden_sample
from .entries.provenance import git_commit


@dataclass(frozen=True)
class TrainedOnCpu:
    """A fitted predictor with its validation and card, ready to be stored."""

    predictor: CpuNetworkPredictor
    validation: CpuValidation
    card: ModelCard
    golden: tuple[Operation, ...]

    def save(self, zoo: Path) -> Path:
        """Write the entry into a zoo folder."""
        return save_cpu_entry(zoo / self.card.name, self.predictor, self.card, list(self.golden))


def train_cpu(
    dataset: Dataset,
    dataset_folder: Path,
    mode: str,
    recipe: Recipe,
    networks: Mapping[NetworkMeasurement, Network],
) -> TrainedOnCpu:
    """Validate a recipe on a dataset, then fit it on everything.

    Args:
        dataset: Measurements of one CPU.
        dataset_folder: The folder that the dataset was loaded from, for its digest.
        mode: inference or training.
        recipe: Settings of the predictor, see `fit_cpu`.
        networks: The operations of each measured network of this mode.

    Raises:
        DatasetError: Too few usable operations.
    """
    validation = validate_cpu(dataset, mode, recipe, networks)
    operations = fit_cpu(dataset, mode, recipe)
    measured = quickest_networks(dataset.usable_networks(mode))
    predictor = CpuNetworkPredictor(
        name=entry_name(operations.cpu, predictor_of(recipe), mode),
        operations=operations,
        serial=fit_serial(operations, [(m, networks[m]) for m in measured]),
        network_errors=validation.network_errors(),
    )
    unique = {m.operation for m in dataset.usable(mode)}
    card = _card(dataset, dataset_folder, recipe, predictor, validation)
    return TrainedOnCpu(predictor, validation, card, tuple(golden_sample(unique)))


def _card(
    dataset: Dataset, folder: Path, recipe: Recipe, predictor: CpuNetworkPredictor, validation: CpuValidation
) -> ModelCard:
    card, operations = dataset.card, predictor.operations
    return ModelCard(
        name=predictor.name,
        gpu=card.gpu,
        mode=operations.mode,
        precisions=tuple(dict.fromkeys(["default", *(group.split()[1] for group in operations.coverage)])),
        predictor=predictor_of(recipe),
        recipe=recipe.to_dict(),
        data={
            "source": card.source,
            "licence": card.licence,
            "sensor": card.sensor,
            "measured": list(card.measured),
            "limits": list(card.limits),
            "sha256": fingerprint(folder),
            "unique_operations": len(operations.measured),
        },
        splits=SPLITS,
        operation_errors={dataset.campaigns(operations.mode)[0]: validation.operations.summary()},
        network_errors={each.label: each.errors for each in validation.networks},
        host=predictor.serial.to_dict(),
        composition=COMPOSITION,
        limits=tuple(_limits(dataset, predictor)),
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        kind_errors={dataset.campaigns(operations.mode)[0]: validation.operations.by_kind()},
        provenance={"git_commit": git_commit()},
    )


def _limits(dataset: Dataset, predictor: CpuNetworkPredictor) -> Iterator[str]:
    card, operations = dataset.card, predictor.operations
    kinds = ", ".join(sorted({group.split()[0] for group in operations.coverage}))
    threads = "1 thread" if operations.threads == 1 else f"{operations.threads} threads"
    yield f"Measured kinds: {kinds}. Others are modelled from a kind of the same family by bytes and FLOPs."
    yield f"For PyTorch with {threads} on a CPU of this name, at the clock that it chose by itself."
    yield from (f"How it was measured: {text}." for text in card.method.values())
    if card.load_average:
        least, middle, most = card.load_average
        yield (
            f"Load average of the machine during the measurements: {middle:.1f} (median), {least:.1f} to {most:.1f}. "
            "What other programs took from caches and memory is in the times."
        )
    serial = predictor.serial
    if serial.networks:
        yield (
            f"In networks operations take {serial.factor:.2f} times as long as in loops, and "
            f"{1e6 * serial.between_s:.1f} us pass between two of them: learned from {serial.networks} measurements of "
            "networks."
        )
    if operations.power is None:
        yield "Energy: not measured. The energy counters of this CPU could not be read, so that only time is predicted."
