"""Errors of a GPU's own predictor on operations and networks that were left out: in folds, by kind, name or family."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import numpy as np

from ...arrays import FloatArray
from ...datasets import Dataset, Measurement, NetworkMeasurement
from ...hardware import find_gpu
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.cluster import in_parallel
from ..fitting.fit import LEAST_OPERATIONS, fit_own
from ..intervals.closeness import Closeness
from ..intervals.network_calibration import Parts
from ..measured.splits import fold_of, network_family, only_in, variants
from ..networks.composition import HostModel, compose, counts_of, plain_sum
from ..networks.gradients import gradient_fractions
from ..networks.learned import fit_network_static_w, fit_tf32_factor
from ..operation_predictions import OperationPredictions
from ..physics.baseline import group_of
from ..physics.roofline import roofline
from ..predictor import OperationPredictor
from ..recipes import Recipe
from .errors import OperationErrors, OwnNetworkError


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


NetworkSplit = Literal["name", "family", "none"]
"""What is left out with a network: all of its shapes and precisions, its whole family, or nothing."""


@dataclass(frozen=True)
class NetworksLeftOut:
    """Errors on networks that were left out.

    Args:
        networks: Errors on the networks.
        operations: Errors on the operations that were left out with them; None if there were none.
    """

    networks: tuple[OwnNetworkError, ...] = ()
    operations: OperationErrors | None = None


def predict_network(predictor: OperationPredictor, network: Network) -> tuple[FloatArray, OperationPredictions]:
    """Counts and predictions of a network's operations, as its parts.

    What the order of tensors costs (networks/effects.py) was found on measured networks. A test on these very
    networks leaves it out.
    """
    fractions = gradient_fractions(network)
    counts, found = counts_of(network), predictor.predict(network.operations)
    return counts, predictor.in_network(found, counts).times(fractions, fractions)


def learn_from_networks(
    predictor: OperationPredictor, networks: Sequence[tuple[NetworkMeasurement, Network]], mode: str
) -> tuple[OperationPredictor, HostModel]:
    """Learn from measured networks what loops do not show: the host cost per call, operations in TF32, static power.

    Args:
        predictor: A predictor that was fitted to operations, and has learned nothing from networks.
        networks: Measured networks with their operations.
        mode: inference or training.

    Returns:
        The predictor with what it learned of networks, and the host model.
    """
    known = [(*predict_network(predictor, network), m) for m, network in networks]
    times = [(counts, found, m.time_s) for counts, found, m in known]
    host = HostModel.fit(times, mode)
    if mode == "inference" and "tf32" in predictor.gpu.peak_flops:
        predictor = replace(predictor, network_tf32_factor=fit_tf32_factor(times, host))
    powers = [(c, predictor.in_network(found, c), m.known_energy_j / m.time_s) for c, found, m in known]
    static_w = fit_network_static_w(powers, host, predictor.gpu.power_limit_w)
    return replace(predictor, network_static_w=static_w), host


def leave_networks_out(
    dataset: Dataset,
    mode: str,
    recipe: Recipe,
    networks: Mapping[NetworkMeasurement, Network],
    *,
    by: NetworkSplit = "name",
) -> NetworksLeftOut:
    """Predict every measured network by a predictor and a host model that have not seen it.

    Args:
        dataset: Measurements of one GPU, with networks.
        mode: inference or training.
        recipe: Settings of the predictor, see `fit_own`.
        networks: The operations of each measured network of this mode.
        by: "name" or "family": leave out all networks of the same name or family, and the operations that only these
            have, in both modes and all precisions. "none": leave out no operations, and fit only the host cost without
            networks of the same name; the errors then show the composition alone.

    Returns:
        One error per measured network, in the order of the dataset, and errors on the operations that were left out.
    """
    measured = [(m, networks[m]) for m in dataset.networks_with_energy(mode)]
    names = list(dict.fromkeys(_group(m, by) for m, _ in measured))
    everything = fit_own(dataset, mode, recipe) if by == "none" else None
    calls = [(dataset, mode, recipe, measured, by, name, everything) for name in names]
    found = (
        [*in_parallel(_errors_without, calls, worthwhile=False, what="networks left out")]
        if everything is None
        else [_errors_without(*call) for call in calls]
    )
    position = {m: i for i, (m, _) in enumerate(measured)}
    errors = [error for networks_of_one, _ in found for error in networks_of_one]
    in_order = sorted(errors, key=lambda error: position[error.measurement])
    operations = [errors for _, errors in found if errors is not None]
    joined = OperationErrors.joined(f"networks left out by {by}", operations) if operations else None
    return NetworksLeftOut(tuple(in_order), joined)


def _group(measurement: NetworkMeasurement, by: NetworkSplit) -> str:
    """What is left out together with a network: its family, or all of its name."""
    return network_family(measurement.network) if by == "family" else measurement.network


def _errors_without(
    dataset: Dataset,
    mode: str,
    recipe: Recipe,
    measured: Sequence[tuple[NetworkMeasurement, Network]],
    by: NetworkSplit,
    name: str,
    everything: OperationPredictor | None,
) -> tuple[list[OwnNetworkError], OperationErrors | None]:
    """Errors on the networks of one name or family, and on the operations that only these have.

    Args:
        dataset: Measurements of one GPU.
        mode: inference or training.
        recipe: Settings of the predictor.
        measured: All measured networks with their operations.
        by: What is left out.
        name: Name or family of the networks that are left out.
        everything: A predictor that was fitted to all operations, if none are left out; None to fit one without them.
    """
    mine = [(m, network) for m, network in measured if _group(m, by) == name]
    others = [(m, network) for m, network in measured if _group(m, by) != name]
    only_here: frozenset[Operation] = frozenset()
    if everything is None:
        only_here = only_in(*([network.operations for _, network in part] for part in (mine, others)))
    predictor = everything or fit_own(dataset, mode, recipe, without=only_here)
    known = {m.operation for m in dataset.usable(mode)}
    left_out = known & only_here
    operations = errors_on(dataset, predictor, only_here, f"networks left out by {by}") if left_out else None
    predictor, host = learn_from_networks(predictor, others, mode)
    closeness = Closeness.of(known - only_here)
    return [_network_error(m, network, predictor, host, closeness, len(left_out)) for m, network in mine], operations


def _network_error(
    measurement: NetworkMeasurement,
    network: Network,
    predictor: OperationPredictor,
    host: HostModel,
    closeness: Closeness,
    left_out: int,
) -> OwnNetworkError:
    counts, predictions = predict_network(predictor, network)
    totals = compose(counts, predictions, host, find_gpu(predictor.gpu).power_limit_w)
    added = plain_sum(counts, predictions)
    measured = np.array([operation.digest in predictor.measured for operation in predictions.operations], dtype=bool)
    foreign = np.array([group_of(op, predictor.gpu) not in predictor.baseline.groups for op in predictions.operations])
    return OwnNetworkError(
        measurement=measurement,
        left_out=left_out,
        time_s=totals.time_s,
        energy_j=totals.energy_j,
        sum_time_s=added.time_s,
        sum_energy_j=added.energy_j,
        device_time_s=totals.device_time_s,
        host_time_s=totals.host_time_s,
        unmeasured_share=float(np.nansum((counts * predictions.device_time_s)[foreign])) / totals.device_time_s,
        parts=Parts.of(counts, predictions, measured, closeness.distances(predictions.operations)),
    )
