"""Errors of a predictor for any GPU on operations, GPUs and networks that were left out of its training.

An operation is in the same fold on all GPUs, in both modes and in all precisions. A GPU is left out together with all
GPUs of the same chip. Each network is predicted twice: by a predictor that was fitted without any network of this chip,
and by one that was fitted with the networks of this chip that have other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import grouped
from ...datasets import Dataset
from ...operations.operation import MODES
from ...operations.operation_list import OperationList
from ..contract import Networks, ResidualModel
from ..fitting.fit import fit_operations, with_energies
from ..fitting.forms import quicker
from ..intervals.conformal import thinned
from ..measured import DeviceRow, fold_of, with_hidden
from ..model.learned import OneModel
from ..model.shared import SharedByAll
from ..networks.composition import HostModel, counts_of
from ..networks.parts import as_parts
from ..networks.predictor import NetworkPredictor
from ..physics.least_times import LeastTimes
from ..recipes import Recipe
from .calibrating import MOST_ERRORS
from .errors import Errors, Validation, network_log_errors
from .left_out import FOLDS, TEXTS, Held, each_left_out, in_order, sides

SPLITS, QUICKLY = TEXTS["any GPU"], TEXTS["quick"]

_MANY_ROWS = 20_000  # From this number of rows on, a fit takes longer than starting a process for it.

BY_CHIP = "operations by chip"
"""Name of the split of operations of GPUs that are left out with all of the same chip."""
NOTHING_KNOWN, NETWORKS_KNOWN = "networks by chip and name", "networks by name, operations by chip"
"""Names of the splits of networks, before the mode: nothing is known of the chip, or other networks on it are."""


def errors_on(
    split: str, rows: Sequence[DeviceRow], learned: ResidualModel, powered: ResidualModel | None = None
) -> Errors:
    """Errors of device times at default clocks, one for each row; of rows that are hidden, none is known.

    With `powered`, the same model with energies, there are also those of the power and energy of a call where its power
    was measured.
    """
    watts = np.array([row.power_w for row in rows], dtype=float)
    seconds = np.array([row.device_s for row in rows])
    # Times of kernels that were not seen are learned from, and judge nothing.
    measured = {"time": np.where([row.hidden for row in rows], np.nan, seconds)}
    predicted = {"time": np.empty(len(rows))}
    if powered is not None:
        measured |= {"power": watts, "energy": watts * seconds}
        predicted |= {name: np.full(len(rows), np.nan) for name in ("power", "energy")}
    groups = grouped(((row.gpu, row.operation.mode), place) for place, row in enumerate(rows))
    for (gpu, mode), places in groups.items():
        operations = OperationList(rows[place].operation for place in places)
        times_s = LeastTimes.of(operations, gpu).time_s * learned.factors(operations, gpu)
        free = ~learned.under_cap(operations, gpu)
        predictor = SharedByAll(powered or learned).on(gpu, mode)
        if free.any():
            times_s[free] = predictor.predict(operations.some(free)).device_time_s
        predicted["time"][places] = times_s
        known = [place for place in places if not np.isnan(watts[place])]
        if powered is not None and known:
            p = predictor.predict([rows[place].operation for place in known])
            predicted["power"][known], predicted["energy"][known] = p.power_w, p.power_w * p.device_time_s
    return Errors.of_operations(
        split,
        [row.gpu.name for row in rows],
        [row.operation for row in rows],
        measured,
        predicted,
        what=[f"{row.operation.kind} {row.operation.mode}" for row in rows],
        chip=[row.gpu.chip for row in rows],
    )


def cross_validate(rows: Sequence[DeviceRow], recipe: Recipe, folds: int | None = None) -> Errors:
    """Cross-validate: predict operations after training without them on any GPU, in any mode and in any precision.

    With a number of folds, only so many of the recipe's are predicted.
    """
    fold = fold_of({row.operation for row in rows}, recipe.folds, recipe.seed)
    column = [fold[row.operation] for row in rows]
    asked = [place if folds is None or place < folds else None for place in column]
    return in_order(each_left_out(asked, _fold, rows, recipe, what="folds", worthwhile=len(rows) >= _MANY_ROWS))


def _fold(rows: Sequence[DeviceRow], recipe: Recipe, held: Held) -> Errors:
    mine, others = sides(rows, held)
    return errors_on(FOLDS, mine, fit_operations((), others, recipe))


def validate_any_gpu(
    datasets: Sequence[Dataset],
    networks: Networks,
    recipe: Recipe,
    *,
    kernels: OneModel | None = None,
    quick: bool = False,
) -> Validation:
    """Validate a recipe: leave operations out in folds, then leave every GPU out with all of the same chip.

    If it is to be `quick`, only the first fold is predicted, only chips whose networks were measured are left out, and
    quicker settings of the recipe are used. The errors are then those of a slightly worse predictor. What is known of
    kernels is known in all networks.
    """
    if quick:
        recipe = quicker(recipe)
    rows = [row for dataset in datasets for row in with_hidden(dataset)]
    with_networks = {gpu.chip for gpu, _, _ in networks}
    chips = [row.gpu.chip for row in rows] + [gpu.chip for gpu, _, _ in networks]
    column = [chip if not quick or chip in with_networks else None for chip in chips]
    many = len(rows) >= _MANY_ROWS
    judged = each_left_out(
        column, _chip, datasets, rows, networks, recipe, kernels, what="chips left out", worthwhile=many
    )
    by_chip = in_order([(held[: len(rows)], of_rows) for held, (of_rows, _) in judged])
    operations = Errors.joined([cross_validate(rows, recipe, 1 if quick else None), by_chip])
    seen = np.any([operations.known(quantity) for quantity in operations.measured], axis=0)
    return Validation(
        "all GPUs",
        operations.where(seen),
        Errors.joined([of_networks for _, (_, of_networks) in judged]),
        together=True,
    )


def interval_errors(validation: Validation) -> dict[str, Any]:
    """The errors from which intervals on GPUs are made of which nothing was measured, as sorted absolute log errors.

    "networks" has them by mode and quantity, on networks of chips of which nothing was known. "time", "power" and
    "energy" have them by family of operations, "" for all, on chips that were left out, which all have the same weight;
    of power and energy, of loops that are clearly bound by the GPU. These are empty if power was measured on fewer than
    two chips, because the errors on one chip do not show those on others.
    """
    operations = dict(validation.operations.groups("split")).get(BY_CHIP, Errors())
    found: dict[str, Any] = {}
    for quantity in ("time", "power", "energy"):
        known = operations.where(operations.known(quantity)) if len(operations) else operations
        enough = len(set(known["chip"].tolist())) > (quantity != "time") if len(known) else False
        found[quantity] = _device_errors(known, quantity) if enough else {}
    networks = dict(validation.networks.groups("split"))
    found["networks"] = {mode: network_log_errors(networks.get(f"{NOTHING_KNOWN}, {mode}", Errors())) for mode in MODES}
    return found


def _chip(
    datasets: Sequence[Dataset],
    rows: Sequence[DeviceRow],
    networks: Networks,
    recipe: Recipe,
    kernels: OneModel | None,
    held: Held,
) -> tuple[Errors, Errors]:
    """Errors on one chip: on its operations, and on its networks."""
    mine, others = sides(rows, held[: len(rows)])
    here, elsewhere = sides(networks, held[len(rows) :])
    # Launch times depend on the host and not on the chip, so all datasets may be used for them.
    learned = fit_operations(datasets, others, recipe)
    of_rows = errors_on(BY_CHIP, mine, learned, with_energies(learned, others, elsewhere, kernels))
    errors = []
    for split, seen in ((NOTHING_KNOWN, elsewhere), (NETWORKS_KNOWN, networks)):
        for name in dict.fromkeys(m.network for _, m, _ in here):
            of_other_names = [n for n in seen if n[1].network != name]
            shared = SharedByAll(with_energies(learned, others, of_other_names, kernels), kernels=kernels)
            hosts = fit_hosts(shared, of_other_names)
            for gpu, m, network in here:
                if m.network == name:
                    predictor = NetworkPredictor("", shared.on(gpu, m.mode), hosts[m.mode], any_gpu=True)
                    p = predictor.predict(network, m.clock_mhz)
                    errors.append(Errors.of_networks(split, gpu.name, [m], [p.time_s], [p.energy_j]))
    return of_rows, Errors.joined(errors)


def _device_errors(operations: Errors, quantity: str) -> dict[str, tuple[float, ...]]:
    sizes, families = np.abs(operations.log_errors(quantity)), np.array(operations.families)
    found = {}
    for family in ["", *sorted(set(families.tolist()))]:
        mine = families == family if family else np.full(len(sizes), True)
        by_chip = [
            sizes[mine & (operations["chip"] == chip)] for chip in sorted(set(operations["chip"][mine].tolist()))
        ]
        as_many_each = np.concatenate([thinned(np.sort(errors), MOST_ERRORS) for errors in by_chip])
        found[family] = tuple(float(f"{error:.4g}") for error in thinned(np.sort(as_many_each), MOST_ERRORS))
    return found


def fit_hosts(shared: SharedByAll, networks: Networks) -> dict[str, HostModel]:
    """Learn what a call costs the host inside a network, by mode."""
    hosts = {}
    for mode in shared.learned.host_s:
        predicted = []
        for gpu, m, network in networks:
            if m.mode == mode:
                calls = shared.on(gpu, mode).predict(network.operations, m.clock_mhz)
                predicted.append((counts_of(network), as_parts(network, calls, gpu), m.time_s))
        hosts[mode] = HostModel.fit(predicted, mode)
    return hosts
