"""DeepPM's head, a line on the sum of the vectors of a block, for networks: beside the sum of operations.

    python benchmarks/deeppm_head.py [--data build/datasets]

The vectors are those of any-gpu/transformer, each operation read alone, times its calls. DeepPM predicts a block's time
by a line on their sum. Here it is ridge regression, of relative errors, and in two more forms that know more: on the
sum of vectors times each operation's least time, and of the log ratio to the sum of operations, on the mean vector.
Ours is the sum of operations alone, whose host is fitted to the same networks as the lines. Networks on a GPU, or of a
name, are left out together; the penalty is chosen by leaving out names within what is learned from. Of a network that
was measured at several clocks the highest counts, because the plain sum of vectors knows no clock. The encoder has seen
operations of the same GPUs, and no network.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from deeppm import Data

from joulecast.operations.operation_list import OperationList
from joulecast.predictors.contract import Networks
from joulecast.predictors.evaluation.any_gpu import fit_hosts
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.transformer.attentive import Attentive
from joulecast.predictors.transformer.encoder import tokens
from joulecast.zoo import find_predictor

PENALTIES = 10.0 ** np.arange(-6, 3)
SUM, SCALED, CORRECTED = (
    "a line on the sum of vectors (DeepPM's)",
    "... of vectors times least times",
    "a line of the log ratio to ours",
)


def inputs(learned: Attentive, networks: Networks) -> dict[str, np.ndarray]:
    """The inputs of each form of the head, shape (networks, inputs)."""
    found: dict[str, list[np.ndarray]] = {SUM: [], SCALED: [], CORRECTED: []}
    for gpu, m, network in networks:
        operations, counts = OperationList(network.operations), np.array([entry.count for entry in network])
        read = (each[:, None] for each in tokens(operations, gpu, learned.vocabulary))
        vectors = np.column_stack([np.ones(len(operations)), learned.encoder.vectors(*read)[:, 0]])
        least_s = counts * LeastTimes.of(operations, gpu, m.clock_mhz or float(gpu.boost_clock_mhz)).time_s
        found[SUM].append(counts @ vectors)
        found[SCALED].append(least_s @ vectors)
        found[CORRECTED].append(least_s @ vectors / least_s.sum())
    return {name: np.array(each) for name, each in found.items()}


def line(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: float) -> np.ndarray:
    """Coefficients of ridge regression; each input counts in units of its size."""
    unit = np.sqrt(np.mean((weight[:, None] * x) ** 2, axis=0)) + 1e-30
    a, b = weight[:, None] * x / unit, weight * y
    found: np.ndarray = np.linalg.solve(a.T @ a + penalty * len(a) * np.eye(a.shape[1]), a.T @ b) / unit
    return found


def predicted(
    form: str, x: np.ndarray, time_s: np.ndarray, ours_s: np.ndarray, train: np.ndarray, penalty: float
) -> np.ndarray:
    """Seconds of all networks by a line that was fitted to some."""
    if form == CORRECTED:
        return ours_s * np.exp(x @ line(x[train], np.log(time_s / ours_s)[train], np.ones(len(train)), penalty))
    return np.maximum(x @ line(x[train], time_s[train], 1 / time_s[train], penalty), 1e-9)


def chosen(fit: Callable[[np.ndarray, float], np.ndarray], time_s: np.ndarray, names: Sequence[str]) -> float:
    """The penalty with the least error on networks whose name was left out."""
    of = np.array(names)

    def error(penalty: float) -> float:
        off = [fit(np.flatnonzero(of != name), penalty)[of == name] / time_s[of == name] - 1 for name in set(names)]
        return float(np.abs(np.concatenate(off)).mean())

    return min(PENALTIES.tolist(), key=error)


def left_out(learned: Attentive, networks: Networks, groups: Sequence[str]) -> dict[str, np.ndarray]:
    """Form -> relative errors of time of networks, those of a group left out together."""
    x, of = inputs(learned, networks), np.array(groups)
    time_s, names = np.array([m.time_s for _, m, _ in networks]), [m.network for _, m, _ in networks]
    found = {name: np.full(len(networks), np.nan) for name in (*x, "ours: the sum of operations")}
    for group in sorted(set(groups)):
        train, test = np.flatnonzero(of != group), np.flatnonzero(of == group)
        hosts = fit_hosts(SharedByAll(learned), [networks[place] for place in train])
        ours_s = np.array(
            [
                NetworkPredictor("", SharedByAll(learned).on(gpu, m.mode), hosts[m.mode])
                .predict(network, m.clock_mhz)
                .time_s
                for gpu, m, network in networks
            ]
        )
        for form, values in x.items():
            own = values[train], time_s[train], ours_s[train]
            penalty = chosen(
                lambda some, penalty, form=form, own=own: predicted(form, *own, some, penalty),
                time_s[train],
                [names[place] for place in train],
            )
            found[form][test] = predicted(form, values, time_s, ours_s, train, penalty)[test] / time_s[test] - 1
        found["ours: the sum of operations"][test] = ours_s[test] / time_s[test] - 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    data = Data(parser.parse_args().data)
    learned = find_predictor("A30", "inference", "any-gpu/transformer").operations.find_shared().learned
    print(f"{'mode':10} {'left out':9} {'form':42} {'networks':>8} {'mean':>7} {'median':>7}")
    for mode in ("inference", "training"):
        highest = {}
        for each in sorted(data.networks, key=lambda each: each[1].clock_mhz or np.inf):
            gpu, m, _ = each
            if m.mode == mode:
                highest[gpu.name, m.network, m.input_shape, m.precision] = each
        some = list(highest.values())
        for what, groups in (
            ("GPU", [gpu.name for gpu, _, _ in some]),
            ("name", [m.network for _, m, _ in some]),
        ):
            if len(set(groups)) < 2:
                continue
            for form, off in left_out(learned, some, groups).items():
                error = 100 * np.abs(off)
                print(f"{mode:10} {what:9} {form:42} {len(off):8} {error.mean():5.1f} % {np.median(error):5.1f} %")


if __name__ == "__main__":
    main()
