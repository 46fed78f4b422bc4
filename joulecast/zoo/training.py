"""From a dataset and a recipe to a zoo entry: validate, fit on everything, describe."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ..datasets import Dataset, NetworkMeasurement, fingerprint
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.evaluation.networks import NetworkError, learn_from_networks
from ..predictors.evaluation.one_gpu import SPLITS, Validation, validate
from ..predictors.evaluation.operations import OperationErrors, errors_on_repeats
from ..predictors.fitting.fit import predictor_of
from ..predictors.fitting.one_gpu import fit_own
from ..predictors.intervals.closeness import Closeness
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.networks.composition import HostModel
from ..predictors.networks.prediction import Composition
from ..predictors.predictor import OperationPredictor
from ..predictors.recipes import Recipe
from .catalogue import entry_name
from .entries.entry import ModelCard, save_entry
from .entries.golden import golden_sample
from .entries.left_out import operations_left_out
from .entries.provenance import git_commit


@dataclass(frozen=True)
class Trained:
    """A fitted predictor with its validation and card, ready to be stored."""

    predictor: OperationPredictor
    validation: Validation
    card: ModelCard
    golden: tuple[Operation, ...]
    network_errors: NetworkCalibration | None = None
    operations: tuple[Operation, ...] = ()

    def save(self, zoo: Path) -> Path:
        """Write the entry into a zoo folder."""
        left_out = operations_left_out(self.validation)
        return save_entry(
            zoo / self.card.name,
            self.predictor,
            self.card,
            list(self.golden),
            left_out,
            self.network_errors,
            self.operations,
        )


def train(
    dataset: Dataset,
    dataset_folder: Path,
    mode: str,
    recipe: Recipe,
    networks: Mapping[NetworkMeasurement, Network],
    borrowed: NetworkCalibration | None = None,
) -> Trained:
    """Validate a recipe on a dataset, then fit it on everything.

    Args:
        dataset: Measurements of one GPU.
        dataset_folder: The folder that the dataset was loaded from, for its digest.
        mode: inference or training.
        recipe: Settings of the predictor, see `fit_own`.
        networks: The operations of each measured network of this mode.
        borrowed: Errors on another GPU's networks, in units of difficulty, for a GPU on which no network was measured.

    Raises:
        DatasetError: Too few usable operations.
    """
    validation = validate(dataset, mode, recipe, networks)
    predictor = fit_own(dataset, mode, recipe)
    operations = {m.operation for m in dataset.usable(mode)}
    calibration, network_errors = validation.calibrated(Closeness.of(operations), errors_on_repeats(dataset, predictor))
    predictor = replace(predictor, calibration=calibration)
    if network_errors is None and calibration is not None:
        network_errors = borrowed
    if validation.networks:
        measured = [(m, networks[m]) for m in dataset.networks_with_energy(mode)]
        predictor, host = learn_from_networks(predictor, measured, mode)
    else:
        host = HostModel.prior(mode)
    card = _card(dataset, dataset_folder, recipe, predictor, host, validation)
    unique = sorted(operations, key=lambda operation: operation.digest)
    return Trained(predictor, validation, card, tuple(golden_sample(operations)), network_errors, tuple(unique))


def better_composition(errors: tuple[NetworkError, ...]) -> Composition:
    """The composition whose median errors of time and energy have the smaller sum; overlap where there are no errors.

    Medians are used, because a network whose operations are mispredicted says nothing about how to add them up.
    """
    if not errors:
        return "overlap"

    def score(time: str, energy: str) -> float:
        return float(sum(np.median([abs(getattr(e, name)) for e in errors]) for name in (time, energy)))

    overlap, added = score("time_error", "energy_error"), score("sum_time_error", "sum_energy_error")
    return "overlap" if overlap <= added else "sum"


def _card(
    dataset: Dataset,
    folder: Path,
    recipe: Recipe,
    predictor: OperationPredictor,
    host: HostModel,
    validation: Validation,
) -> ModelCard:
    card = dataset.card
    composition = better_composition(validation.networks)
    return ModelCard(
        name=entry_name(predictor.gpu, predictor_of(recipe), predictor.mode),
        gpu=card.gpu,
        mode=predictor.mode,
        precisions=tuple(_precisions(dataset, predictor)),
        predictor=predictor_of(recipe),
        recipe=recipe.to_dict(),
        data={
            "source": card.source,
            "licence": card.licence,
            "sensor": card.sensor,
            "measured": list(card.measured),
            "limits": list(card.limits),
            "sha256": fingerprint(folder),
            "unique_operations": len(predictor.measured),
        },
        splits=SPLITS,
        operation_errors={errors.campaign: errors.summary() for errors in validation.operations},
        network_errors={
            f"{e.measurement.network} {'x'.join(map(str, e.measurement.input_shape))} {e.measurement.precision}": {
                "time": e.time_error if composition == "overlap" else e.sum_time_error,
                "energy": e.energy_error if composition == "overlap" else e.sum_energy_error,
            }
            for e in validation.networks
        },
        host=host.to_dict(),
        composition=composition,
        coverage=tuple(asdict(row) for row in validation.coverage() if row.group == "all"),
        limits=limits_of(predictor, host),
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        kind_errors={errors.campaign: _by_kind(errors) for errors in validation.operations},
        provenance={"git_commit": git_commit()},
    )


def _by_kind(errors: OperationErrors) -> dict[str, dict[str, float]]:
    found = {}
    for kind, (time, power) in errors.tables()["kind"].items():
        found[kind] = {"count": time["count"], "time_median": time["median"], "time_mean": time["mean"]}
        if power:
            found[kind] |= {"power_median": power["median"], "power_mean": power["mean"]}
    return found


def _precisions(dataset: Dataset, predictor: OperationPredictor) -> Iterator[str]:
    """Precisions that users may ask for: those in which every kind that was measured at all is covered."""
    measured = {m.operation.precision for m in dataset.usable(predictor.mode)}
    # Where there is no TF32, the default is fp32.
    if "fp32" in measured and ("tf32" in measured or "tf32" not in predictor.gpu.peak_flops):
        yield "default"
    yield from (precision for precision in ("fp32", "fp16", "bf16") if precision in measured)


def limits_of(predictor: OperationPredictor, host: HostModel) -> tuple[str, ...]:
    """What users have to know about a predictor of one GPU before they trust it, in sentences for its card."""
    kinds = ", ".join(sorted({group.split()[0] for group in predictor.baseline.groups}))
    limits = [
        f"Measured kinds: {kinds}. Others are modelled from a kind of the same family by bytes and FLOPs.",
        "Measured at the default clock and power cap only; others are scaled by physics.",
        "Batch 32 and image inputs dominate the data; other regimes are extrapolated.",
    ]
    if len(predictor.measured) < 200:
        limits.append(f"Only {len(predictor.measured)} operations were measured: expect large errors.")
    if predictor.transferred:
        limits.append(
            f"Large operations of these kinds were measured in inference only; training is inferred from that: "
            f"{', '.join(predictor.transferred)}."
        )
    if not host.learned:
        limits.append("No network was measured on this GPU; the host cost is that of the A30's machine.")
    return tuple(limits)
