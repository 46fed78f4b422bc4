"""From the datasets of many GPUs to the zoo entry of device times of kernels: validate, fit on everything, describe."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..datasets import Dataset, fingerprint
from ..errors import DatasetError
from ..predictors.evaluation.kernels import SPLITS, KernelErrors, coverage, kept_errors, tables, validate_kernels
from ..predictors.kernels.fit import LEAST_ROWS, Measured, Names, by_variant, fit_kernels
from ..predictors.kernels.learned import Kernels
from ..predictors.recipes.kernels import KernelRecipe
from .catalogue import KERNELS_ENTRY
from .entries.golden import GOLDEN_OPERATIONS, golden_sample
from .entries.kernels_entry import Golden, KernelsCard, save_kernels
from .entries.provenance import git_commit

LIMITS = (
    "Device times at the default clock and cap; power and energy, other clocks and caps are physics.",
    "fp16 is taken to run as bf16 does, at the same rate of tensor cores: linear layers were measured in bf16.",
    "Quantized layers were measured in the kernels of engines for language models, not in PyTorch's.",
    "A GPU of a generation that was not measured has more error than the tables of left-out generations say, if it is "
    "further from those that were measured than they are from each other.",
)


@dataclass(frozen=True)
class TrainedKernels:
    """What was learned, with its validation and card, ready to be stored."""

    kernels: Kernels
    validation: tuple[KernelErrors, ...]
    card: KernelsCard
    golden: Golden

    def save(self, zoo: Path) -> Path:
        """Write the entry into a zoo folder."""
        return save_kernels(zoo / self.card.name, self.kernels, self.card, self.golden)


def train_kernels(datasets: Sequence[tuple[Path, Dataset]], recipe: KernelRecipe) -> TrainedKernels:
    """Find the errors of a recipe on what is left out, then fit it on everything.

    Args:
        datasets: With the folders that they were loaded from; what they say of no family of kernels is left out.
        recipe: Settings.

    Raises:
        DatasetError: Too few device times.
        MissingDependencyError: scipy or xgboost is not installed.
    """
    measured = by_variant(dataset for _, dataset in datasets)
    fitted = fit_kernels(measured, recipe)
    if not fitted.variants:
        raise DatasetError("too few device times of kernels", allowed=f"from {LEAST_ROWS} of a variant")
    learned = {names: measured[names] for names in fitted.variants}
    validation = validate_kernels(learned, recipe)
    variants = {
        names: replace(variant, errors=kept_errors(validation, names)) for names, variant in fitted.variants.items()
    }
    card = KernelsCard(
        name=KERNELS_ENTRY,
        kernels={", ".join(names): tuple(sorted(variant.gpus)) for names, variant in variants.items()},
        recipe=recipe.to_json(),
        data=tuple(_described(folder, dataset) for folder, dataset in datasets),
        splits=SPLITS,
        errors=tables(validation),
        coverage=coverage(validation),
        limits=LIMITS,
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        provenance={"git_commit": git_commit()},
    )
    return TrainedKernels(Kernels(variants), validation, card, _golden(learned))


def _golden(measured: Mapping[Names, Sequence[Measured]]) -> Golden:
    return {
        names: (tables[0].gpu.name, golden_sample(set(tables[0].operations))[:GOLDEN_OPERATIONS])
        for names, tables in measured.items()
    }


def _described(folder: Path, dataset: Dataset) -> dict[str, Any]:
    card = dataset.card
    return {
        "gpu": card.gpu,
        "source": card.source,
        "licence": card.licence,
        "operations": len({m.operation for m in dataset.measurements}),
        "sha256": fingerprint(folder),
    }
