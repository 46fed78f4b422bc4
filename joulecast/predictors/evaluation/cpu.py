"""Validation of a recipe on a CPU: operations left out in folds, and networks left out by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import FloatArray
from ...datasets import Dataset, NetworkMeasurement
from ...operations.network import Network
from ...operations.operation import Operation
from ...progress import tracked
from ..cpu.fit import LEAST_OPERATIONS, fit_cpu, fit_serial, quickest_loops, quickest_networks
from ..cpu.network import CpuNetworkPredictor
from ..measured.splits import fold_of, only_in
from ..recipes import Recipe
from .metrics import absolute_errors, errors_by, scores

SPLITS = (
    "Operations: k-fold cross-validation; an operation is in the same fold in both modes and all precisions. Networks: "
    "each name is left out in all its shapes, together with every operation that no other measured network has, and "
    "the constants by which operations add up are fitted without it. Of repeated measurements the quickest counts, "
    "because other programs can only make them longer."
)


@dataclass(frozen=True)
class CpuOperationErrors:
    """Operations that were left out in folds: measured and predicted, one value per operation; NaN where not covered.

    Args:
        operations: The operations.
        time_s, predicted_time_s: Measured and predicted seconds per call, shape (operations,).
        power_w, predicted_power_w: Measured and predicted watts; NaN where no power was measured.
    """

    operations: tuple[Operation, ...]
    time_s: FloatArray
    predicted_time_s: FloatArray
    power_w: FloatArray
    predicted_power_w: FloatArray

    def summary(self) -> dict[str, float]:
        """R2 and absolute relative errors of time and, where it was measured, of power."""
        found = {
            "measurements": float(len(self.operations)),
            "unique_operations": float(len(self.operations)),
            "uncovered": float(np.isnan(self.predicted_time_s).sum()),
            **scores("time", self.time_s, self.predicted_time_s),
        }
        if not np.isnan(self.power_w).all():
            found |= scores("power", self.power_w, self.predicted_power_w)
        return found

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Kind -> count, and median and mean error of time; most operations first."""
        found = errors_by([operation.kind for operation in self.operations], self.time_s, self.predicted_time_s)
        return {
            kind: {"count": row["count"], "time_median": row["median"], "time_mean": row["mean"]}
            for kind, row in sorted(found.items(), key=lambda item: -item[1]["count"])
        }


@dataclass(frozen=True)
class CpuNetworkError:
    """One measured network, and its prediction by a predictor trained without the operations that only it has.

    Args:
        measurement: The measurement of the network.
        left_out: Number of operations of the dataset that were left out of training.
        time_s: Predicted seconds.
        energy_j: Predicted joules; None where no power was measured.
    """

    measurement: NetworkMeasurement
    left_out: int
    time_s: float
    energy_j: float | None

    @property
    def errors(self) -> dict[str, float]:
        """Relative errors of time and, where it was measured, of energy."""
        found = {"time": self.time_s / self.measurement.time_s - 1}
        if self.energy_j is not None and self.measurement.energy_j is not None:
            found["energy"] = self.energy_j / self.measurement.energy_j - 1
        return found

    @property
    def label(self) -> str:
        """The network with its shape and precision, as cards name it."""
        m = self.measurement
        return f"{m.network} {'x'.join(map(str, m.input_shape))} {m.precision}"


@dataclass(frozen=True)
class CpuValidation:
    """The validation of a recipe on one CPU and mode.

    Args:
        gpu, mode: CPU and mode of the predictions.
        operations: Errors on operations left out in folds.
        networks: Errors on networks left out by name; empty if none was measured.
    """

    gpu: str
    mode: str
    operations: CpuOperationErrors
    networks: tuple[CpuNetworkError, ...]

    def network_errors(self) -> dict[str, tuple[float, ...]]:
        """Quantity -> sorted absolute log errors on networks, for intervals; only time where no energy was measured."""
        if not self.networks:
            return {}
        rows = [{name: float(np.log1p(error)) for name, error in each.errors.items()} for each in self.networks]
        found = {"time": [row["time"] for row in rows]}
        if all("energy" in row for row in rows):
            energy = [row["energy"] for row in rows]
            found |= {"energy": energy, "power": [e - t for e, t in zip(energy, found["time"], strict=True)]}
            found |= {"edp": [e + t for e, t in zip(energy, found["time"], strict=True)]}
        return {name: tuple(sorted(map(abs, errors))) for name, errors in found.items()}

    def metrics(self) -> dict[str, float]:
        """All errors as numbers by name, for tracking."""
        found = {f"operations/{name}": value for name, value in self.operations.summary().items()}
        for quantity in ("time", "energy"):
            errors = [each.errors[quantity] for each in self.networks if quantity in each.errors]
            if errors:
                found |= {f"networks/{quantity}_{name}": value for name, value in absolute_errors(errors).items()}
        return found


def validate_cpu(
    dataset: Dataset, mode: str, recipe: Recipe, networks: Mapping[NetworkMeasurement, Network]
) -> CpuValidation:
    """Cross-validate the operations of a CPU, and leave every measured network out.

    Args:
        dataset: Measurements of one CPU.
        mode: inference or training.
        recipe: Settings of the predictor, see `fit_cpu`.
        networks: The operations of each measured network of this mode.

    Raises:
        DatasetError: Too few usable operations.
    """
    quickest = quickest_networks(dataset.usable_networks(mode))
    left_out = _networks_left_out(dataset, mode, recipe, [(m, networks[m]) for m in quickest])
    return CpuValidation(dataset.card.gpu, mode, _in_folds(dataset, mode, recipe), left_out)


def _in_folds(dataset: Dataset, mode: str, recipe: Recipe) -> CpuOperationErrors:
    loops = quickest_loops(dataset, mode)
    operations = tuple(loop.operation for loop in loops)
    predicted = np.full((2, len(loops)), np.nan)
    folds = fold_of(operations, recipe.folds, recipe.seed)
    for fold in tracked(range(recipe.folds), "folds"):
        mine = [i for i, operation in enumerate(operations) if folds[operation] == fold]
        if not mine or len(operations) - len(mine) < LEAST_OPERATIONS:
            continue
        found = fit_cpu(dataset, mode, recipe, without=[operations[i] for i in mine]).predict(
            [operations[i] for i in mine]
        )
        predicted[0, mine] = found.time_s
        predicted[1, mine] = found.power_w
    power_w = np.array([np.nan if loop.power_w is None else loop.power_w for loop in loops])
    return CpuOperationErrors(
        operations, np.array([loop.time_s for loop in loops]), predicted[0], power_w, predicted[1]
    )


def _networks_left_out(
    dataset: Dataset, mode: str, recipe: Recipe, measured: Sequence[tuple[NetworkMeasurement, Network]]
) -> tuple[CpuNetworkError, ...]:
    known = {m.operation for m in dataset.usable(mode)}
    errors = []
    for name in tracked(dict.fromkeys(m.network for m, _ in measured), "networks left out"):
        mine = [(m, network) for m, network in measured if m.network == name]
        others = [(m, network) for m, network in measured if m.network != name]
        only_here = only_in(*([network.operations for _, network in part] for part in (mine, others)))
        operations = fit_cpu(dataset, mode, recipe, without=only_here)
        predictor = CpuNetworkPredictor("", operations, fit_serial(operations, others), {})
        for m, network in mine:
            found = predictor.predict(network)
            errors.append(CpuNetworkError(m, len(known & only_here), found.time_s, found.energy_j))
    return tuple(errors)
