"""Errors on operations that were left out of a predictor's training, in folds or by kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from statistics import median

import numpy as np

from ...datasets import Dataset, Measurement
from ...operations.operation import Operation
from ...system.cluster import in_parallel
from ..fitting.one_gpu import LEAST_OPERATIONS, fit_own
from ..intervals.closeness import Closeness
from ..measured.splits import fold_of, variants
from ..physics.roofline import roofline
from ..predictor import OperationPredictor
from ..recipes import Recipe
from .errors import OperationErrors


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
    found = in_parallel(_fitted_without, calls, worthwhile=False, what=title)
    return OperationErrors.joined(title, [errors for _, errors in found])


def _parts(fold: Mapping[Operation, int]) -> list[list[Operation]]:
    return [[operation for operation, mine in fold.items() if mine == held] for held in sorted(set(fold.values()))]


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
