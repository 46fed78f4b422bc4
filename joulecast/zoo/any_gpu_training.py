"""From the datasets of many GPUs to the zoo entry that serves any: validate, fit on everything, describe."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets import Dataset, fingerprint
from ..operations.operation import Operation
from ..predictors.contract import Networks, ResidualModel
from ..predictors.evaluation.any_gpu import (
    QUICKLY,
    SPLITS,
    AnyGpuValidation,
    errors_of_networks,
    fit_hosts,
    operation_errors,
    validate_any_gpu,
)
from ..predictors.fitting.any_gpu import fit_on_all
from ..predictors.fitting.fit import predictor_of
from ..predictors.measured.device_rows import DeviceRow, device_rows
from ..predictors.recipes import Recipe
from .entries.any_gpu_entry import AnyGpuCard, save_any_gpu
from .entries.golden import golden_sample
from .entries.provenance import git_commit

LIMITS = (
    "It knows GPUs by their data sheets. A GPU that runs hotter, has a lower power cap, or has a less tuned library "
    "than the measured ones is slower than predicted.",
    "Whole networks in half precision were measured on A100 and A10 only, and training on A30 and RTX 2080 Ti only.",
    "Its data has no power readings of 4 nm and 5 nm chips, or of AMD GPUs. Their energy per operation is a prior.",
    "If the voltage curve of a GPU is not known, that of the A100 is used.",
    "Host times are those of the machines on which the training data was measured. On a slower machine, launches take "
    "longer.",
)


@dataclass(frozen=True)
class TrainedAnyGpu:
    """A trained predictor with its validation and card, ready to be stored."""

    learned: ResidualModel
    validation: AnyGpuValidation
    card: AnyGpuCard
    golden: Mapping[str, list[Operation]]

    def save(self, zoo: Path) -> Path:
        """Write the entry into a zoo folder."""
        return save_any_gpu(zoo / self.card.name, self.learned, self.card, self.golden)


def train_any_gpu(
    datasets: Sequence[tuple[Path, Dataset]], networks: Networks, recipe: Recipe, *, quick: bool = False
) -> TrainedAnyGpu:
    """Validate a recipe on the measurements of many GPUs, then fit it on everything.

    Args:
        datasets: Datasets with the folders that they were loaded from.
        networks: The operations of each measured network.
        recipe: Settings.
        quick: Whether to test on one fold and a few chips only, see `validate_any_gpu`.

    Raises:
        DatasetError: Too few device times.
    """
    data = [dataset for _, dataset in datasets]
    validation = validate_any_gpu(data, networks, recipe, quick=quick)
    rows = [row for dataset in data for row in device_rows(dataset)]
    learned = fit_on_all(data, networks, recipe).correction
    hosts = fit_hosts(learned, networks)
    card = AnyGpuCard(
        name=f"any-gpu/{predictor_of(recipe)}",
        predictor=predictor_of(recipe),
        recipe=recipe.to_dict(),
        data=tuple(described(folder, dataset) for folder, dataset in datasets),
        splits=f"{SPLITS} {QUICKLY}" if quick else SPLITS,
        operation_errors=operation_errors(validation),
        network_errors=errors_of_networks(validation),
        host={mode: host.to_dict() for mode, host in hosts.items()},
        log_errors={mode: validation.log_errors(mode) for mode in hosts},
        device_errors=validation.device_errors,
        power_errors=validation.power_errors,
        limits=LIMITS,
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        provenance={"git_commit": git_commit()},
    )
    return TrainedAnyGpu(learned, validation, card, _golden_operations(rows))


def described(folder: Path, dataset: Dataset) -> dict[str, Any]:
    """The description of a training dataset for a card."""
    card = dataset.card
    return {
        "gpu": card.gpu,
        "clock_mhz": card.clock_mhz,
        "source": card.source,
        "licence": card.licence,
        "sensor": card.sensor,
        "operations": len({m.operation for m in dataset.measurements}),
        "networks": len(dataset.networks),
        "sha256": fingerprint(folder),
    }


def _golden_operations(rows: Sequence[DeviceRow]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for gpu in dict.fromkeys(row.gpu.name for row in rows):
        mine = {row.operation for row in rows if row.gpu.name == gpu and row.operation.mode == "inference"}
        if mine:
            found[gpu] = golden_sample(mine)
    return found
