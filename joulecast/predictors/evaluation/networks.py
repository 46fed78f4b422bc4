"""Errors on networks that were left out of a predictor's training, alone or with their whole family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...arrays import FloatArray
from ...datasets import Dataset, NetworkMeasurement
from ...hardware import find_gpu
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.cluster import in_parallel
from ..fitting.one_gpu import fit_own
from ..intervals.closeness import Closeness
from ..intervals.network_calibration import Parts
from ..measured.splits import network_family, only_in
from ..networks.composition import HostModel, compose, counts_of, plain_sum
from ..networks.gradients import gradient_fractions
from ..networks.learned import fit_network_static_w, fit_tf32_factor
from ..operation_predictions import OperationPredictions
from ..physics.baseline import group_of
from ..predictor import OperationPredictor
from ..recipes import Recipe
from .errors import OperationErrors, OwnNetworkError
from .operations import errors_on

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
