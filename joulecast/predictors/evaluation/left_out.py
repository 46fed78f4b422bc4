"""The one loop of all evaluations, over a column that says what is left out together; in it, what a chip's loops add.

A column has a value for each measurement: the fold or the kind of its operation, the name or the family of its network,
the chip of its GPU. What has one value is left out of training and then predicted.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import compress
from statistics import median
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import grouped
from ...datasets import Dataset, NetworkMeasurement
from ...errors import DatasetError
from ...operations.network import Network
from ...operations.operation import Operation
from ...system.cluster import in_parallel
from ..chip import ChipPart
from ..fitting.fit import LEAST_OPERATIONS, fit_chip, learn_from_networks, predict_network
from ..intervals.calibration import Cases, Closeness
from ..intervals.network_calibration import shares_of
from ..measured import fold_of, network_family, only_in, variants
from ..model.shared import chip_alone
from ..networks.composition import HostModel, Totals, compose, plain_sum
from ..physics.baseline import group_of
from ..recipes import Recipe
from .calibrating import Parts
from .errors import SEEN, SUMMED, Errors

TEXTS: Mapping[str, str] = tomllib.loads(files(__package__).joinpath("splits.toml").read_text(encoding="utf-8"))
"""Evaluation -> what is left out in it, for cards and reports."""

Found = TypeVar("Found")
Value = TypeVar("Value")
Held = NDArray[np.bool_]
"""Mask of what is left out, one truth value for each measurement of a column."""


def each_left_out(
    column: Sequence[Hashable], judge: Callable[..., Found], *arguments: Any, what: str, worthwhile: bool = False
) -> list[tuple[Held, Found]]:
    """Leave out what has one value in a column, then what has the next, in the order of the values.

    What has None there is never left out. `judge` is a function at the top level of a module. It gets the arguments and
    the mask of what is left out, fits to the rest, and returns what it found on what was left out. `worthwhile` says
    whether processes on this machine are worth their start and a copy of the arguments.
    """
    values: list[Any] = sorted({value for value in column if value is not None})
    masks = [np.array([mine == value for mine in column], dtype=bool) for value in values]
    calls = [(*arguments, held) for held in masks]
    return [*zip(masks, in_parallel(judge, calls, worthwhile=worthwhile, what=what), strict=True)]


def sides(values: Sequence[Value], held: Held) -> tuple[list[Value], list[Value]]:
    """What is left out, and the rest."""
    return [*compress(values, held)], [*compress(values, ~held)]


def in_order(judged: Sequence[tuple[Held, Errors]]) -> Errors:
    """Join errors in the order of the column, of which each part has one row, or several, for what was left out."""
    places = [np.tile(np.flatnonzero(held), len(found) // max(int(held.sum()), 1)) for held, found in judged]
    joined = Errors.joined(found for _, found in judged)
    return joined.where(np.argsort(np.concatenate(places), kind="stable")) if len(joined) else joined


FOLDS = "operations in folds"
"""Name of the split of operations into folds, within each campaign."""
KINDS = "kinds left out"
"""Name of the split by kinds of operations, of which another one stands in for each."""


def cross_validate(
    dataset: Dataset, mode: str, recipe: Recipe, campaign: str | None = None, split: str = FOLDS
) -> Errors:
    """Predict every operation by a predictor that was fitted without it (cross-validation).

    A recipe's `folds` and `seed` decide the split; a campaign of None stands for all. Raises DatasetError: there are
    too few operations.
    """
    if campaign is not None:
        rows = tuple(m for m in dataset.usable(mode) if m.campaign == campaign)
        dataset = replace(dataset, measurements=rows, networks=())
    column = fold_of(_usable(dataset, mode), recipe.folds, recipe.seed)
    return _operations_left_out(dataset, mode, recipe, column, split)


def leave_kinds_out(dataset: Dataset, mode: str, recipe: Recipe) -> Errors:
    """Predict every operation by a predictor trained without its kind, so that another kind stands in for it.

    Empty where too few operations would remain without any of the kinds.
    """
    operations = _usable(dataset, mode)
    of_kind = Counter(operation.kind for operation in operations)
    enough = {kind for kind, count in of_kind.items() if len(operations) - count >= 2 * LEAST_OPERATIONS}
    column = {o: o.kind if o.kind in enough else None for o in operations}
    return _operations_left_out(dataset, mode, recipe, column, KINDS)


def _usable(dataset: Dataset, mode: str) -> list[Operation]:
    return sorted({m.operation for m in dataset.usable(mode)}, key=lambda operation: operation.digest)


def _operations_left_out(
    dataset: Dataset, mode: str, recipe: Recipe, column: Mapping[Operation, Hashable], split: str
) -> Errors:
    judged = each_left_out([*column.values()], _fitted_without, dataset, mode, recipe, split, tuple(column), what=split)
    return Errors.joined(errors for _, errors in judged)


def _fitted_without(
    dataset: Dataset, mode: str, recipe: Recipe, split: str, operations: Sequence[Operation], held: Held
) -> Errors:
    """Errors on some operations of loops that were fitted without these in any mode and precision."""
    without = variants([*compress(operations, held)])
    return errors_on(dataset, fit_chip(dataset, mode, recipe, without=without), without, split)


def errors_on(dataset: Dataset, chip: ChipPart, held: Collection[Operation], split: str) -> Errors:
    """The errors on measurements of operations that a chip's part was fitted without.

    Further columns are whether the host needs longer than the GPU ("host_bound"), the distance to the nearest
    operations in the training data ("distance", see `Closeness`), and whether a loop was run in the way that the
    predictor assumes ("reference"), which those of older campaigns may not be.
    """
    rows = [m for m in dataset.usable(chip.mode) if m.operation in held]
    seen = {m.operation for m in dataset.usable(chip.mode) if m.operation not in held}
    operations = tuple(m.operation for m in rows)
    # Repeats are predicted once.
    place = {operation: i for i, operation in enumerate(dict.fromkeys(operations))}
    unique, places = [*place], [place[operation] for operation in operations]
    p = chip_alone(chip).predict(unique)
    covered = np.where(chip.covered(unique), 1.0, np.nan)  # What physics alone says of the others is no error of loops.
    return Errors.of_operations(
        split,
        [m.campaign for m in rows],
        operations,
        {"time": [m.time_s for m in rows], "power": [m.power_w if m.power_usable else None for m in rows]},
        {"time": (covered * p.time_s)[places], "power": (covered * p.power_w)[places]},
        host_bound=p.host_bound[places],
        distance=Closeness.of(seen).distances(unique)[places],
        reference=np.array([m.method == chip.baseline.method for m in rows], dtype=bool),
    )


def errors_on_repeats(dataset: Dataset, chip: ChipPart) -> Errors:
    """Errors on new measurements of operations in the training data; empty where none was measured repeatedly.

    The part was trained on the median of an operation's repeats. So each repeat in turn counts as a new
    measurement, and the prediction is shifted from the median of all repeats to the median of the others.
    """
    usable = [m for m in dataset.usable(chip.mode) if m.method == chip.baseline.method]
    repeats = grouped((m.operation, m) for m in usable)
    rows = [m for group in repeats.values() if len(group) > 1 for m in group]
    if not rows:
        return Errors()
    within = replace(dataset, measurements=tuple(rows), networks=())
    errors = errors_on(within, chip, {m.operation for m in rows}, SEEN)
    predicted = {quantity: values.copy() for quantity, values in errors.predicted.items()}
    for i, m in enumerate(rows):
        for quantity, name in (("time", "time_s"), ("power", "power_w")):
            known = [each for each in repeats[m.operation] if getattr(each, name) is not None]
            if others := [getattr(each, name) for each in known if each is not m]:
                predicted[quantity][i] *= median(others) / median(getattr(each, name) for each in known)
    return replace(errors, predicted=predicted).having({"distance": np.zeros(len(rows))})


NetworkSplit = Literal["name", "family", "nothing"]
"""What is left out with a network: all of its shapes and precisions, its whole family, or nothing."""


def split_of(by: NetworkSplit) -> str:
    """Name of a split of networks, before the mode."""
    return "networks, operations seen" if by == "nothing" else f"networks by {by}"


def leave_networks_out(
    dataset: Dataset,
    mode: str,
    recipe: Recipe,
    networks: Mapping[NetworkMeasurement, Network],
    *,
    by: NetworkSplit = "name",
) -> tuple[Errors, Errors]:
    """Predict every measured network by a predictor and a host model that have not seen it.

    By "name" or "family": all networks of the same name or family are left out, and the operations that only these
    have, in both modes and all precisions. By "nothing": no operation is left out, and only the host cost is fitted
    without networks of the same name; the errors then show the composition alone.

    Returns the errors on networks, each as it is composed and as a plain sum, with the columns of `_network_errors`;
    and those on the operations that were left out with them.
    """
    measured = [(m, networks[m]) for m in dataset.networks_with_energy(mode)]
    column = [network_family(m.network) if by == "family" else m.network for m, _ in measured]
    everything = fit_chip(dataset, mode, recipe) if by == "nothing" and measured else None
    judged = each_left_out(
        column, _networks_judged, dataset, recipe, measured, (mode, split_of(by)), everything, what="networks left out"
    )
    of_networks = in_order([(held, errors) for held, (errors, _) in judged])
    return of_networks, Errors.joined(operations for _, (_, operations) in judged)


def _networks_judged(
    dataset: Dataset,
    recipe: Recipe,
    measured: Sequence[tuple[NetworkMeasurement, Network]],
    of: tuple[str, str],
    everything: ChipPart | None,
    held: Held,
) -> tuple[Errors, Errors]:
    """Errors on networks that are left out, and on the operations that only these have; `of` has mode and split."""
    mode, split = of
    mine, others = sides(measured, held)
    only_here: frozenset[Operation] = frozenset()
    if everything is None:
        only_here = only_in(*([network.operations for _, network in part] for part in (mine, others)))
    try:
        chip = everything or fit_chip(dataset, mode, recipe, without=only_here)
    except DatasetError:  # Too few operations remain: nothing is known of these networks.
        return Errors(), Errors()
    known = {m.operation for m in dataset.usable(mode)}
    left_out = known & only_here
    operations = errors_on(dataset, chip, only_here, f"operations of {split}") if left_out else Errors()
    chip, host = learn_from_networks(chip, others, mode)
    closeness = Closeness.of(known - only_here)
    return _network_errors(mine, chip, host, closeness, len(left_out), split), operations


def _network_errors(
    networks: Sequence[tuple[NetworkMeasurement, Network]],
    chip: ChipPart,
    host: HostModel,
    closeness: Closeness,
    left_out: int,
    split: str,
) -> Errors:
    """The errors on networks.

    Further columns are the number of operations that were left out of training ("left_out"), predicted seconds of the
    GPU and of the host ("device_s", "host_s"), the share of the device time in groups (kind and precision) without any
    measurement ("unmeasured_share"), and the operations from which the difficulty is computed ("parts").
    """
    columns: dict[str, list[Any]] = defaultdict(list)
    totals: dict[str, list[Totals]] = {split: [], f"{split}{SUMMED}": []}
    for _, network in networks:
        counts, predictions = predict_network(chip, network)
        composed = compose(counts, predictions, host, chip.gpu.power_limit_w)
        for mine, one in zip(totals.values(), (composed, plain_sum(counts, predictions)), strict=True):
            mine.append(one)
        measured = np.array([operation.digest in chip.measured for operation in predictions.operations], dtype=bool)
        foreign = np.array([group_of(op, chip.gpu) not in chip.baseline.groups for op in predictions.operations])
        foreign_s = float(np.nansum((counts * predictions.device_time_s)[foreign]))
        columns["left_out"].append(left_out)
        columns["device_s"].append(composed.device_time_s)
        columns["host_s"].append(composed.host_time_s)
        columns["unmeasured_share"].append(foreign_s / composed.device_time_s)
        shares, known = shares_of(counts, predictions)
        distances = closeness.distances(predictions.operations)[known]
        covered = tuple(compress(predictions.operations, known))
        cases = Cases(covered, np.zeros(len(shares), dtype=bool), measured[known], distances)
        columns["parts"].append(Parts(shares, cases))
    found, name = [m for m, _ in networks], chip.gpu.name
    return Errors.joined(
        Errors.of_networks(each, name, found, [one.time_s for one in mine], [one.energy_j for one in mine], **columns)
        for each, mine in totals.items()
    )
