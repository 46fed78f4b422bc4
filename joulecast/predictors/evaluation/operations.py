"""Errors on operations that were left out of a predictor's training, in folds or by kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset, Measurement
from ...operations.operation import Operation
from ..fitting.one_gpu import LEAST_OPERATIONS, fit_own
from ..intervals.closeness import Closeness
from ..measured.splits import fold_of, variants
from ..physics.roofline import roofline
from ..predictor import OperationPredictor
from ..recipes import Recipe
from .metrics import errors_by, scores
from .parallel import in_parallel


@dataclass(frozen=True)
class OperationErrors:
    """Measured and predicted loops of operations that were not in the training data; one value per measurement.

    Args:
        campaign: Name of the campaign that measured them.
        mode: inference or training.
        operations: The measured operations.
        time_s, power_w: Measured seconds and watts; NaN without a usable power.
        predicted_time_s, predicted_power_w: Predicted seconds and watts; NaN for kinds without training data.
        roofline_s: Least time by the data sheet, a measure of an operation's size on this GPU.
        host_bound: Whether launching was predicted to take longer than the work of the GPU.
        distances: Distance to the nearest operations in the training data; see `Closeness`.
        reference: Whether a loop was run in the way that the predictor assumes; loops of older campaigns may differ.
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
    distances: FloatArray
    reference: NDArray[np.bool_]

    @classmethod
    def joined(cls, campaign: str, parts: Sequence[OperationErrors]) -> Self:
        """Join errors of at least one part."""
        arrays = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in cls.__dataclass_fields__
            if name not in ("campaign", "mode", "operations")
        }
        operations = tuple(operation for part in parts for operation in part.operations)
        return cls(campaign, parts[0].mode, operations, **arrays)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """Select some of the measurements."""
        arrays = {
            name: getattr(self, name)[chosen]
            for name in self.__dataclass_fields__
            if name not in ("campaign", "mode", "operations")
        }
        operations = tuple(self.operations[i] for i in np.flatnonzero(chosen))
        return replace(self, operations=operations, **arrays)

    def log_errors(self, quantity: str) -> FloatArray:
        """Log of predicted over measured time, power or energy; NaN where either is not known."""
        time = np.log(self.predicted_time_s / self.time_s)
        power = np.log(self.predicted_power_w / self.power_w)
        return {"time": time, "power": power, "energy": time + power}[quantity]

    def summary(self) -> dict[str, float]:
        """R2 and absolute relative errors (median, mean, 90th percentile) of time and power."""
        return {
            "measurements": float(len(self.operations)),
            "unique_operations": float(len(set(self.operations))),
            # In a small campaign, a fold can contain all operations of a kind.
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
            # Sizes are listed in ascending order, all other groups by their number of measurements.
            by_count = sorted(time.items(), key=lambda item: -item[1]["count"])
            order = _DECADES if name == "roofline time" else [key for key, _ in by_count]
            found[name] = {key: (time[key], power.get(key, {})) for key in order if key in time}
        return found


_DECADES = ("below 1 us", "1 to 10 us", "10 to 100 us", "0.1 to 1 ms", "from 1 ms")


def _decade(seconds: float) -> str:
    return _DECADES[int(np.searchsorted([1e-6, 1e-5, 1e-4, 1e-3], seconds, side="right"))]


def cross_validate(dataset: Dataset, mode: str, recipe: Recipe, campaign: str | None = None) -> OperationErrors:
    """Predict every operation by a predictor that was fitted without it (cross-validation).

    Args:
        dataset: Measurements of one GPU.
        mode: inference or training.
        recipe: Settings; `folds` and `seed` decide the split.
        campaign: Name of the only campaign whose measurements are used; None for all campaigns.

    Raises:
        DatasetError: There are too few operations.
    """
    if campaign is not None:
        rows = tuple(m for m in dataset.usable(mode) if m.campaign == campaign)
        dataset = replace(dataset, measurements=rows, networks=())
    fold = fold_of({m.operation for m in dataset.usable(mode)}, recipe.folds, recipe.seed)
    return _held_out(dataset, mode, recipe, fold, campaign or "all campaigns")


def cross_validated(
    dataset: Dataset, mode: str, recipe: Recipe
) -> Iterator[tuple[OperationPredictor, OperationErrors]]:
    """Like `cross_validate`, but one fold after the other in this process, with the predictors."""
    fold = fold_of({m.operation for m in dataset.usable(mode)}, recipe.folds, recipe.seed)
    for operations in _parts(fold):
        yield _fitted_without(dataset, mode, recipe, operations, "all campaigns")


def leave_kinds_out(dataset: Dataset, mode: str, recipe: Recipe) -> OperationErrors | None:
    """Predict every operation by a predictor trained without its kind, so that another kind stands in for it.

    None where too few operations would remain without any of the kinds.
    """
    operations = {m.operation for m in dataset.usable(mode)}
    of_kind = Counter(operation.kind for operation in operations)
    kinds = sorted(kind for kind, count in of_kind.items() if len(operations) - count >= 2 * LEAST_OPERATIONS)
    fold = {o: kinds.index(o.kind) for o in operations if o.kind in kinds}
    if not fold:
        return None
    return _held_out(dataset, mode, recipe, fold, "kinds left out")


def _held_out(
    dataset: Dataset, mode: str, recipe: Recipe, fold: Mapping[Operation, int], title: str
) -> OperationErrors:
    """Errors on the operations of each fold, by predictors that were fitted without it."""
    calls = [(dataset, mode, recipe, operations, title) for operations in _parts(fold)]
    return OperationErrors.joined(title, [*in_parallel(_errors_without, calls, worthwhile=False, what=title)])


def _parts(fold: Mapping[Operation, int]) -> list[list[Operation]]:
    return [[operation for operation, mine in fold.items() if mine == held] for held in sorted(set(fold.values()))]


def _errors_without(
    dataset: Dataset, mode: str, recipe: Recipe, held: Collection[Operation], title: str
) -> OperationErrors:
    return _fitted_without(dataset, mode, recipe, held, title)[1]


def _fitted_without(
    dataset: Dataset, mode: str, recipe: Recipe, held: Collection[Operation], title: str
) -> tuple[OperationPredictor, OperationErrors]:
    """A predictor that was fitted without some operations, in any mode and precision, and its errors on them."""
    operations = variants(held)
    predictor = fit_own(dataset, mode, recipe, without=operations)
    return predictor, errors_on(dataset, predictor, operations, title)


def errors_on(
    dataset: Dataset, predictor: OperationPredictor, held: Collection[Operation], title: str
) -> OperationErrors:
    """The errors of a predictor on measurements of operations that it was fitted without.

    Args:
        dataset: The measurements that predictions are compared with.
        predictor: A predictor that was fitted to the other measurements of the dataset.
        held: The operations that it was fitted without.
        title: Name of the errors in reports.
    """
    rows = [m for m in dataset.usable(predictor.mode) if m.operation in held]
    seen = {m.operation for m in dataset.usable(predictor.mode) if m.operation not in held}
    operations = tuple(m.operation for m in rows)
    # Repeats are predicted once.
    unique = list(dict.fromkeys(operations))
    place = {operation: i for i, operation in enumerate(unique)}
    places = [place[operation] for operation in operations]
    p = predictor.predict(unique)
    clock = float(predictor.gpu.boost_clock_mhz)
    return OperationErrors(
        campaign=title,
        mode=predictor.mode,
        operations=operations,
        time_s=np.array([m.time_s for m in rows]),
        predicted_time_s=p.time_s[places],
        power_w=np.array([m.power_w if m.power_usable and m.power_w is not None else np.nan for m in rows]),
        predicted_power_w=p.power_w[places],
        roofline_s=roofline(unique, predictor.gpu, clock).time_s[places] if unique else np.empty(0),
        host_bound=p.host_bound[places],
        distances=Closeness.of(seen).distances(unique)[places],
        reference=np.array([m.method == predictor.baseline.method for m in rows], dtype=bool),
    )


def errors_on_repeats(dataset: Dataset, predictor: OperationPredictor) -> OperationErrors | None:
    """Errors on new measurements of operations in the training data; None where no operation was measured repeatedly.

    The predictor was trained on the median of an operation's repeats. So each repeat in turn counts as a new
    measurement, and the prediction is shifted from the median of all repeats to the median of the others.

    Args:
        dataset: The measurements that the predictor was fitted to.
        predictor: The predictor.
    """
    repeats: dict[Operation, list[Measurement]] = defaultdict(list)
    for m in dataset.usable(predictor.mode):
        if m.method == predictor.baseline.method:
            repeats[m.operation].append(m)
    rows = [m for group in repeats.values() if len(group) > 1 for m in group]
    if not rows:
        return None
    within = replace(dataset, measurements=tuple(rows), networks=())
    errors = errors_on(within, predictor, {m.operation for m in rows}, "measured before")
    moved = np.ones((2, len(rows)))
    for i, m in enumerate(rows):
        for row, values in (
            (0, [(other.time_s, other is m) for other in repeats[m.operation]]),
            (1, [(other.power_w, other is m) for other in repeats[m.operation] if other.power_w is not None]),
        ):
            others = [value for value, is_mine in values if not is_mine]
            if others:
                moved[row, i] = median(others) / median([value for value, _ in values])
    return replace(
        errors,
        predicted_time_s=errors.predicted_time_s * moved[0],
        predicted_power_w=errors.predicted_power_w * moved[1],
        distances=np.zeros(len(rows)),
    )
