"""Errors of a predictor for any GPU on operations, GPUs and networks that were left out of its training.

An operation is in the same fold on all GPUs, in both modes and in all precisions. A GPU is left out together with all
GPUs of the same chip. Each network is predicted twice: by a predictor that was fitted without any network of this chip,
and by one that was fitted with the networks of this chip that have other names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import Dataset
from ...hardware import GPU
from ..contract import Curves, Networks, ResidualModel
from ..fitting.fit import fit_operations, network_learner, quicker
from ..intervals.conformal import thinned
from ..measured import DeviceRow, fold_of, with_hidden
from ..model.fit_operations import inputs_and_targets
from ..model.learned import OneModel
from ..model.operations import LearnedOperations
from ..model.shared import SharedByAll
from ..networks.composition import HostModel, counts_of
from ..networks.parts import as_parts
from ..networks.prepared import NetworkPredictor
from ..physics.least_times import LeastTimes
from ..recipes import Recipe
from ..regressors.fitted_trees import FittedTrees
from .calibrating import MOST_ERRORS
from .errors import Known, NetworkError, network_log_errors
from .left_out import TEXTS, Held, each_left_out

SPLITS, QUICKLY = TEXTS["any GPU"], TEXTS["quick"]

_MANY_ROWS = 20_000  # From this number of rows on, a fit takes longer than starting a process for it.

ALL = "all GPUs"
"""Name in place of a GPU for errors over all GPUs, whose kind and mode are "all all"."""


KindErrors = Mapping[str, Mapping[str, tuple[int, float, float]]]
"""GPU -> kind and mode -> number of operations, median and mean absolute relative error of their device times."""


@dataclass(frozen=True)
class AnyGpuValidation:
    """The validation of a recipe for predictors for any GPU.

    Args:
        folds: Errors on operations that were left out on all GPUs.
        left_out: Errors on GPUs that were left out.
        networks: Errors on networks; each appears twice, see `Known`.
        device_errors: Family, or "" for all families -> sorted absolute log errors of device time on chips that were
            left out. All chips have the same weight.
        power_errors: "power" and "energy" -> such errors of loops that are clearly bound by the GPU. Empty if power was
            measured on fewer than two chips, because the errors on one chip do not show those on others.
        curves: Mean absolute log errors on the operations of the first fold, by number of trees.
    """

    folds: KindErrors
    left_out: KindErrors
    networks: tuple[NetworkError, ...]
    device_errors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    power_errors: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Errors per split, GPU and kind as numbers by name, for tracking."""
        found = {}
        for name, known in (("networks", "nothing"), ("networks_known", "networks")):
            errors = [e for e in self.networks if e.known == known]
            for quantity in ("time", "energy", "power") if errors else ():
                found[f"{name}/{quantity}_error_mean"] = fmean(abs(each.error(quantity)) for each in errors)
        for split, gpus in (("folds", self.folds), ("left_out", self.left_out)):
            for gpu, kinds in gpus.items():
                for kind, (_, median, mean) in kinds.items():
                    name = f"{split}/{gpu}/{kind.replace(' ', '/')}"
                    found |= {f"{name}/time_median": median, f"{name}/time_mean": mean}
        return found

    def log_errors(self, mode: str) -> dict[str, tuple[float, ...]]:
        """Sorted absolute log errors by quantity on networks of chips of which nothing was known, for intervals."""
        mine = [e for e in self.networks if e.measurement.mode == mode and e.known == "nothing"]
        return network_log_errors(mine)


def log_ratios(learned: ResidualModel, rows: Sequence[DeviceRow]) -> FloatArray:
    """Log of predicted over measured device time, at default clocks."""
    found = np.empty(len(rows))
    for gpu, _, places in _by_gpu(rows):
        operations = [rows[i].operation for i in places]
        least = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz))
        predicted = least.time_s * learned.factors(operations, gpu)
        found[places] = np.log(predicted / np.array([rows[i].device_s for i in places]))
    return found


def power_log_ratios(learned: ResidualModel, rows: Sequence[DeviceRow]) -> dict[str, FloatArray]:
    """Log of predicted over measured "power" and "energy" of a call, at default clocks and caps."""
    found = {quantity: np.empty(len(rows)) for quantity in ("power", "energy")}
    for gpu, mode, places in _by_gpu(rows):
        p = SharedByAll(learned).on(gpu, mode).predict([rows[i].operation for i in places])
        measured_w = np.array([rows[i].power_w for i in places], dtype=float)
        measured_s = np.array([rows[i].device_s for i in places])
        found["power"][places] = np.log(p.power_w / measured_w)
        found["energy"][places] = np.log(p.power_w * p.device_time_s / (measured_w * measured_s))
    return found


def _by_gpu(rows: Sequence[DeviceRow]) -> list[tuple[GPU, str, list[int]]]:
    """Each GPU and mode with the indices of its rows."""
    groups: dict[tuple[GPU, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.gpu, row.operation.mode].append(i)
    return [(*key, places) for key, places in groups.items()]


def _by_kind(rows: Sequence[DeviceRow], log_ratio: FloatArray) -> KindErrors:
    """Errors by GPU, kind and mode. The first are the errors over all rows, unless there are no rows."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, error in zip(rows, np.abs(np.expm1(log_ratio)).tolist(), strict=True):
        groups[ALL, "all all"].append(error)
        groups[row.gpu.name, f"{row.operation.kind} {row.operation.mode}"].append(error)
    found: dict[str, dict[str, tuple[int, float, float]]] = {}
    for (gpu, kind), e in sorted(groups.items(), key=lambda item: (item[0][0] != ALL, item[0])):
        found.setdefault(gpu, {})[kind] = len(e), float(np.median(e)), float(np.mean(e))
    return found


def cross_validate(rows: Sequence[DeviceRow], recipe: Recipe, folds: int | None = None) -> tuple[KindErrors, Curves]:
    """Cross-validate: predict operations after training without them on any GPU, in any mode and in any precision.

    With a number of folds, only so many of the recipe's are predicted.

    Returns:
        The errors, and the learning curves as in `AnyGpuValidation.curves`.
    """
    fold = fold_of({row.operation for row in rows}, recipe.folds, recipe.seed)
    column = np.array([fold[row.operation] for row in rows])
    asked = [place if folds is None or place < folds else None for place in column.tolist()]
    judged = each_left_out(asked, _fold, rows, recipe, column == 0, what="folds", worthwhile=len(rows) >= _MANY_ROWS)
    log_ratio = np.full(len(rows), np.nan)
    for held, (found, _) in judged:
        log_ratio[held] = found
    tested = ~np.isnan(log_ratio) & _shown(rows)
    return _by_kind([*compress(rows, tested)], log_ratio[tested]), judged[0][1][1]


def _shown(rows: Sequence[DeviceRow]) -> NDArray[np.bool_]:
    """Whether the kernel of each row was seen: what was not seen is learned from, and judges nothing."""
    return np.array([not row.hidden for row in rows])


def _fold(rows: Sequence[DeviceRow], recipe: Recipe, first: NDArray[np.bool_], held: Held) -> tuple[FloatArray, Curves]:
    """Log of predicted over measured device time of what is left out, and in the first fold the learning curves."""
    mine, others = ([*compress(rows, side)] for side in (held, ~held))
    learned = fit_operations((), others, recipe)
    curves: Curves = {}
    if np.array_equal(held, first) and isinstance(learned, LearnedOperations) and isinstance(learned.time, FittedTrees):
        curves = {
            "time/held_out_error": learned.time.error_by_trees(*inputs_and_targets([*compress(mine, _shown(mine))]))
        }
    return log_ratios(learned, mine), curves


def validate_any_gpu(
    datasets: Sequence[Dataset],
    networks: Networks,
    recipe: Recipe,
    *,
    kernels: OneModel | None = None,
    quick: bool = False,
) -> AnyGpuValidation:
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
    in_folds, curves = cross_validate(rows, recipe, 1 if quick else None)
    ratios = np.full((3, len(rows)), np.nan)  # of time, power and energy
    for held, (of_rows, _) in judged:
        ratios[:, held[: len(rows)]] = of_rows
    times, powers = ~np.isnan(ratios[0]) & _shown(rows), ~np.isnan(ratios[1])
    tested, powered = ([*compress(rows, known)] for known in (times, powers))
    several = len({row.gpu.chip for row in powered}) > 1
    return AnyGpuValidation(
        folds=in_folds,
        left_out=_by_kind(tested, ratios[0, times]),
        networks=tuple(error for _, (_, errors) in judged for error in errors),
        device_errors=_device_errors(tested, ratios[0, times]),
        power_errors={
            quantity: _device_errors(powered, each[powers])
            for quantity, each in zip(("power", "energy"), ratios[1:], strict=True)
            if several
        },
        curves=curves,
    )


def _chip(
    datasets: Sequence[Dataset],
    rows: Sequence[DeviceRow],
    networks: Networks,
    recipe: Recipe,
    kernels: OneModel | None,
    held: Held,
) -> tuple[FloatArray, list[NetworkError]]:
    """Errors on one chip: log ratios of time, power and energy of its rows, shape (3, rows); and of its networks."""
    out, networks_out = held[: len(rows)], held[len(rows) :]
    mine, others = ([*compress(rows, side)] for side in (out, ~out))
    here, elsewhere = ([*compress(networks, side)] for side in (networks_out, ~networks_out))
    # Launch times depend on the host and not on the chip, so all datasets may be used for them.
    learned = fit_operations(datasets, others, recipe)
    learn = network_learner(learned, others, recipe, kernels)
    ratios = np.full((3, len(mine)), np.nan)
    ratios[0] = log_ratios(learned, mine)
    powered = [place for place, row in enumerate(mine) if row.power_w is not None]
    if powered:
        ratios[1:, powered] = [*power_log_ratios(learn(elsewhere), [mine[place] for place in powered]).values()]
    errors = []
    splits: tuple[tuple[Known, Networks], ...] = (("nothing", elsewhere), ("networks", networks))
    for known, seen in splits:
        for name in dict.fromkeys(m.network for _, m, _ in here):
            of_other_names = [n for n in seen if n[1].network != name]
            without = learn(of_other_names)
            shared = SharedByAll(without, kernels=kernels)
            hosts = fit_hosts(shared, of_other_names)
            for gpu, m, network in here:
                if m.network == name:
                    predictor = NetworkPredictor("", shared.on(gpu, m.mode), hosts[m.mode], any_gpu=True)
                    found = predictor.predict(network, m.clock_mhz)
                    totals = found.time_s, found.known_energy_j
                    error = NetworkError(m, 0, *totals, gpu=gpu.name, known=known, power_w=found.known_power_w)
                    errors.append(error)
    return ratios, errors


def _device_errors(rows: Sequence[DeviceRow], log_ratio: FloatArray) -> dict[str, tuple[float, ...]]:
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, error in zip(rows, np.abs(log_ratio).tolist(), strict=True):
        for family in ("", row.operation.row.family):
            groups[family][row.gpu.chip].append(error)
    found = {}
    for family, chips in sorted(groups.items()):
        as_many_each = np.concatenate([thinned(np.sort(errors), MOST_ERRORS) for errors in chips.values()])
        found[family] = tuple(float(f"{error:.4g}") for error in thinned(np.sort(as_many_each), MOST_ERRORS))
    return found


def operation_errors(validation: AnyGpuValidation) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Split -> GPU -> kind and mode -> median and mean error of device time, for cards and reports."""
    splits = {"folds": validation.folds, "gpu left out": validation.left_out}
    return {
        split: {gpu: {kind: e[1:] for kind, e in kinds.items()} for gpu, kinds in gpus.items()}
        for split, gpus in splits.items()
    }


def errors_of_networks(validation: AnyGpuValidation) -> dict[str, dict[str, dict[str, float]]]:
    """What was known of the chip -> network -> relative errors of time, energy and power, for cards and reports."""
    found: dict[str, dict[str, dict[str, float]]] = {"nothing": {}, "networks": {}}
    for e in validation.networks:
        found[e.known or "nothing"][e.label] = e.errors
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
