"""Operations that a predictor has not seen: predicted and measured loops, in folds and by what is left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..datasets import Dataset, Measurement
from ..hardware import find_gpu
from ..operations import Operation
from .features import FloatArray, roofline
from .fitting import fit_own
from .metrics import errors_by, scores
from .predictor import OperationPredictions
from .recipe import OwnRecipe
from .splits import fold_of, variants


@dataclass(frozen=True)
class OperationErrors:
    """Measured and predicted loops of operations that the predictor had not seen; one value per measurement.

    Args:
        campaign: Whose measurements these are.
        mode: inference or training.
        operations: What was measured.
        time_s, power_w: As measured; NaN without a usable power.
        predicted_time_s, predicted_power_w: NaN where the predictor had seen nothing of the kind.
        roofline_s: Least time by the data sheet, the size of an operation on this GPU.
        host_bound: Where launching was predicted to take longer than the GPU's work.
    """

    campaign: str
    mode: str
    operations: tuple[Operation, ...]
    time_s: FloatArray
    predicted_time_s: FloatArray
    power_w: FloatArray
    predicted_power_w: FloatArray
    roofline_s: FloatArray
    host_bound: NDArray[np.bool_]

    def summary(self) -> dict[str, float]:
        """R2 and absolute relative errors (median, mean, 90th percentile) of time and power."""
        return {
            "measurements": float(len(self.operations)),
            "unique_operations": float(len(set(self.operations))),
            # In a small campaign a fold can hold all there is of a kind.
            "uncovered": float(np.isnan(self.predicted_time_s).sum()),
            **scores("time", self.time_s, self.predicted_time_s),
            **scores("power", self.power_w, self.predicted_power_w),
        }

    def tables(self) -> dict[str, Mapping[str, tuple[dict[str, float], dict[str, float]]]]:
        """Errors of time and of power by kind, by size and by what bounds the loop; most measurements first."""
        labels = {
            "kind": [operation.kind for operation in self.operations],
            "roofline time": [_decade(seconds) for seconds in self.roofline_s.tolist()],
            "bound by": ["host" if host else "GPU" for host in self.host_bound.tolist()],
        }
        found: dict[str, Mapping[str, tuple[dict[str, float], dict[str, float]]]] = {}
        for name, values in labels.items():
            time = errors_by(values, self.time_s, self.predicted_time_s)
            power = errors_by(values, self.power_w, self.predicted_power_w)
            # Sizes in their order, the others by how many there are.
            by_count = sorted(time.items(), key=lambda item: -item[1]["count"])
            order = _DECADES if name == "roofline time" else [key for key, _ in by_count]
            found[name] = {key: (time[key], power.get(key, {})) for key in order if key in time}
        return found


_DECADES = ("below 1 us", "1 to 10 us", "10 to 100 us", "0.1 to 1 ms", "from 1 ms")


def _decade(seconds: float) -> str:
    return _DECADES[int(np.searchsorted([1e-6, 1e-5, 1e-4, 1e-3], seconds, side="right"))]


def cross_validate(dataset: Dataset, mode: str, recipe: OwnRecipe, campaign: str) -> OperationErrors:
    """Predict every operation of a campaign by predictors that have seen other operations of that campaign only.

    Args:
        dataset: Of one GPU.
        mode: inference or training.
        recipe: Settings; `folds` and `seed` decide the split.
        campaign: Whose measurements to use.

    Raises:
        DatasetError: Too few operations.
    """
    rows = [m for m in dataset.usable(mode) if m.campaign == campaign]
    within = replace(dataset, measurements=tuple(rows), networks=())
    fold = fold_of({m.operation for m in rows}, recipe.folds, recipe.seed)
    return _held_out(within, mode, recipe, rows, fold, campaign)


def leave_kinds_out(dataset: Dataset, mode: str, recipe: OwnRecipe) -> OperationErrors:
    """Predict every operation by a predictor that has seen none of its kind: what stands in for it must do."""
    rows = dataset.usable(mode)
    kinds = list(dict.fromkeys(m.operation.kind for m in rows))
    fold = {m.operation: kinds.index(m.operation.kind) for m in rows}
    return _held_out(dataset, mode, recipe, rows, fold, "kinds left out")


def _held_out(
    dataset: Dataset,
    mode: str,
    recipe: OwnRecipe,
    rows: list[Measurement],
    fold: Mapping[Operation, int],
    title: str,
) -> OperationErrors:
    predicted: dict[Operation, tuple[float, float, float, float]] = {}
    for held in sorted(set(fold.values())):
        operations = [operation for operation, mine in fold.items() if mine == held]
        predicted |= dict(zip(operations, _predicted(dataset, mode, recipe, operations), strict=True))
    measured = tuple(m.operation for m in rows)
    time_s, power_w, device_s, host_s = np.array([predicted[operation] for operation in measured]).T
    gpu = find_gpu(dataset.card.gpu)
    return OperationErrors(
        campaign=title,
        mode=mode,
        operations=measured,
        time_s=np.array([m.time_s for m in rows]),
        predicted_time_s=time_s,
        power_w=np.array([m.power_w if m.power_usable and m.power_w is not None else np.nan for m in rows]),
        predicted_power_w=power_w,
        roofline_s=roofline(measured, gpu, float(gpu.boost_clock_mhz)).time_s,
        host_bound=device_s < host_s,
    )


def _predicted(
    dataset: Dataset, mode: str, recipe: OwnRecipe, held: Collection[Operation]
) -> list[tuple[float, float, float, float]]:
    p: OperationPredictions = fit_own(dataset, mode, recipe, without=variants(held)).predict(list(held))
    return list(
        zip(p.time_s.tolist(), p.power_w.tolist(), p.device_time_s.tolist(), p.host_time_s.tolist(), strict=True)
    )
