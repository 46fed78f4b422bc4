"""How good the transformer is beside XGBoost, physics and plain sums: benchmarks/transformer/REPORT.md.

    python benchmarks/transformer.py --data build/datasets fold-0 networks out-a100 out-a30 ablation report

Datasets are those of `joulecast datasets import`, found in all folders below --data. Every stage writes a JSON file
into --work, so that they can run one after another or side by side; `report` reads what is there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import transformer_report

from joulecast.datasets import Dataset, load
from joulecast.hardware import GPU, find_gpu
from joulecast.operations import Operation
from joulecast.predictors.any_gpu import AnyGpuPredictor, Learned
from joulecast.predictors.attentive import Attentive, AttentivePredictor
from joulecast.predictors.boosting import device_rows, fit_any_gpu
from joulecast.predictors.composition import HostModel, compose, plain_sum
from joulecast.predictors.contract import Networks
from joulecast.predictors.device_row import DeviceRow
from joulecast.predictors.features import FloatArray
from joulecast.predictors.physics import PRIOR_ENERGY, LeastTimes
from joulecast.predictors.recipe import BoostingRecipe
from joulecast.predictors.relative import relative_features
from joulecast.predictors.transformer_examples import OperationExamples, network_example
from joulecast.predictors.transformer_files import from_safetensors, to_safetensors
from joulecast.predictors.transformer_fit import FittedTransformer, fit_transformer
from joulecast.predictors.transformer_losses import torch_encoder
from joulecast.predictors.transformer_networks import fit_networks
from joulecast.predictors.transformer_recipe import TransformerRecipe
from joulecast.profiling import network_of

OUT = Path(__file__).with_name("transformer") / "REPORT.md"
NETWORKS_FROM = "NVIDIA A30"  # Whose networks are learned from where those of other GPUs are left out.
NAME_GROUPS = 14  # One for each name.
ABLATION = {"epochs": 8, "most_rows": 40_000}
VARIANTS: dict[str, dict[str, object]] = {
    "as DeepPM": {},
    "standard encoder (layer norm)": {"layer_norm": True},
    "without distance weighting": {"distance_weighting": False},
    "without the three stacks (one)": {"stacks": "one"},
}

Predict = Callable[[GPU, str], AnyGpuPredictor | AttentivePredictor]
DeviceTimes = Callable[[GPU, str, Sequence[Operation]], FloatArray]


class Data:
    """All datasets below a folder."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(path.parent for path in folder.rglob("card.json"))
        self.datasets: list[Dataset] = [load(path) for path in paths]
        self.rows: list[DeviceRow] = [row for dataset in self.datasets for row in device_rows(dataset)]
        self.networks: Networks = [
            (
                find_gpu(dataset.card.gpu),
                m,
                m.operations or network_of(m.network, m.input_shape, mode=m.mode, precision=m.precision),
            )
            for dataset in self.datasets
            for m in dataset.networks
            if m.usable
        ]
        self.own_networks = [n for n in self.networks if n[0].name == NETWORKS_FROM]
        self.other_networks = [n for n in self.networks if n[0].name != NETWORKS_FROM]

    def split(self, held: int, folds: int, seed: int) -> tuple[list[DeviceRow], list[DeviceRow]]:
        """Rows outside and inside of a fold; an operation lies in one fold with all GPUs that it was measured on."""
        unique = sorted({row.operation for row in self.rows}, key=lambda operation: operation.digest)
        order = np.random.default_rng(seed).permutation(len(unique))
        mine = {unique[i] for i in order[held::folds]}
        return [row for row in self.rows if row.operation not in mine], [r for r in self.rows if r.operation in mine]


def row_errors(device_s: DeviceTimes, rows: Sequence[DeviceRow]) -> list[float]:
    """Relative errors of device time, row by row."""
    errors = [0.0] * len(rows)
    groups: dict[tuple[GPU, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        groups[row.gpu, row.operation.mode].append(place)
    for (gpu, mode), places in groups.items():
        found = device_s(gpu, mode, [rows[place].operation for place in places]).tolist()
        for place, seconds in zip(places, found, strict=True):
            errors[place] = seconds / rows[place].device_s - 1
    return errors


def of_transformer(fitted: FittedTransformer) -> DeviceTimes:
    return lambda gpu, mode, operations: AttentivePredictor(gpu, mode, fitted.learned).predict(operations).device_time_s


def of_trees(learned: Learned) -> DeviceTimes:
    # As they are: the predictor around them would lower clocks for the power cap, which the measurements include.
    return lambda gpu, mode, operations: (
        LeastTimes.of(operations, gpu, gpu.boost_clock_mhz).time_s
        * learned.ratio(operations, relative_features(operations, gpu))
    )


def power_errors(predict: Predict, rows: Sequence[DeviceRow]) -> list[float]:
    """Relative errors of the power while an operation runs, where it was measured."""
    errors = []
    for row in rows:
        if row.power_w is not None:
            found = predict(row.gpu, row.operation.mode).predict([row.operation])
            active_w = found.static_power_w + found.dynamic_energy_j[0] / found.device_time_s[0]
            errors.append(float(active_w) / row.power_w - 1)
    return errors


def network_rows(networks: Networks, transformer: Attentive, trees: Predict | None) -> list[dict[str, object]]:
    """Relative errors of time and energy of networks: read as a whole, overlapped, and as plain sums."""
    found = []
    for gpu, m, network in networks:
        counts = np.array([entry.count for entry in network], dtype=float)
        operations = [entry.operation for entry in network]
        predictor = AttentivePredictor(gpu, m.mode, transformer)
        parts = predictor.predict(operations, m.clock_mhz)
        totals = {
            "whole": predictor.predict_network(network, m.clock_mhz),
            "sum": plain_sum(counts, parts),
            "overlap": compose(counts, parts, HostModel.prior(m.mode), gpu.power_limit_w),
        }
        if trees is not None:
            of_trees = trees(gpu, m.mode).predict(operations, m.clock_mhz)
            totals["trees sum"] = plain_sum(counts, of_trees)
            totals["trees overlap"] = compose(counts, of_trees, HostModel.prior(m.mode), gpu.power_limit_w)
        errors = {name: [each.time_s / m.time_s - 1, each.energy_j / m.energy_j - 1] for name, each in totals.items()}
        found.append({"gpu": gpu.name, "network": m.network, "mode": m.mode, "precision": m.precision, **errors})
    return found


def rows_left_out(data: Data, train: list[DeviceRow], test: list[DeviceRow], store: Path) -> dict[str, object]:
    """Fit both on the same rows; errors of both on the others."""
    start = time.perf_counter()
    fitted = fit_transformer(data.datasets, data.own_networks, TransformerRecipe(), train)
    transformer_s = time.perf_counter() - start
    start = time.perf_counter()
    learned = fit_trees(data, train)
    trees_s = time.perf_counter() - start

    def transformer(gpu: GPU, mode: str) -> AttentivePredictor:
        return AttentivePredictor(gpu, mode, fitted.learned)

    def trees(gpu: GPU, mode: str) -> AnyGpuPredictor:
        return AnyGpuPredictor(gpu, mode, learned)

    store.with_suffix(".safetensors").write_bytes(to_safetensors(fitted.model))
    store.with_suffix(".learned").write_text(json.dumps(fitted.learned.to_json()))
    return {
        "train": len(train),
        "seconds": [transformer_s, trees_s],
        "rows": [[row.gpu.name, row.operation.kind, row.operation.mode] for row in test],
        "transformer": row_errors(of_transformer(fitted), test),
        "trees": row_errors(of_trees(learned), test),
        "power": [power_errors(transformer, test), power_errors(trees, test)],
    }


def fit_trees(data: Data, rows: list[DeviceRow]) -> Learned:
    """XGBoost. Times are learned from operations only; energies are those that the transformer starts from, because
    fitted to the networks of one GPU they are far off on others."""
    return replace(fit_any_gpu(data.datasets, data.own_networks, BoostingRecipe(), rows), energy=PRIOR_ENERGY)


def networks_left_out(data: Data, store: Path) -> dict[str, object]:
    """Networks with the operations of fold-0: of GPUs whose networks were left out, and of names that were."""
    recipe = TransformerRecipe()
    train, _ = data.split(0, recipe.folds, recipe.seed)
    described = json.loads(store.with_suffix(".learned").read_text())
    model = from_safetensors(store.with_suffix(".safetensors").read_bytes(), recipe, len(described["vocabulary"]))
    learned = Attentive.from_json(described, torch_encoder(model))
    trees = fit_trees(data, train)
    result = {
        "networks": network_rows(data.other_networks, learned, lambda gpu, mode: AnyGpuPredictor(gpu, mode, trees))
    }
    return {**result, "names": names_left_out(data, FittedTransformer(model, learned), train)}


def names_left_out(data: Data, fitted: FittedTransformer, rows: list[DeviceRow]) -> list[dict[str, object]]:
    """Networks whose names were left out on all GPUs, when networks were learned; not their operations."""
    recipe, learned = TransformerRecipe(), fitted.learned
    examples = OperationExamples.of(rows, learned.vocabulary, PRIOR_ENERGY)
    measured = {id(n): network_example(*n, learned.vocabulary, PRIOR_ENERGY, learned.host_s) for n in data.networks}
    names = sorted({m.network for _, m, _ in data.networks})
    found = []
    for group in range(NAME_GROUPS):
        held = set(names[group::NAME_GROUPS])
        others = [measured[id(n)] for n in data.networks if n[1].network not in held]
        fit_networks(fitted.model, examples, others, recipe)
        again = replace(learned, encoder=torch_encoder(fitted.model))
        found += network_rows([n for n in data.networks if n[1].network in held], again, None)
    return found


def ablation(data: Data) -> dict[str, object]:
    """Every variant on fewer rows and epochs, on one fold."""
    train, test = data.split(0, TransformerRecipe().folds, 0)
    result: dict[str, object] = {
        "settings": ABLATION,
        "rows": [[r.gpu.name, r.operation.kind, r.operation.mode] for r in test],
    }
    variants = {}
    for name, settings in VARIANTS.items():
        recipe = TransformerRecipe(**{**ABLATION, **settings})  # type: ignore[arg-type]
        start = time.perf_counter()
        fitted = fit_transformer(data.datasets, data.own_networks, recipe, train)
        variants[name] = {
            "seconds": time.perf_counter() - start,
            "errors": row_errors(of_transformer(fitted), test),
            "networks": network_rows(data.other_networks, fitted.learned, None),
        }
    result["variants"] = variants
    return result


def run(stage: str, data: Data, work: Path) -> dict[str, object]:
    if stage == "ablation":
        return ablation(data)
    if stage == "networks":
        return networks_left_out(data, work / "fold-0")
    what, _, which = stage.partition("-")
    if what == "fold":
        recipe = TransformerRecipe()
        return rows_left_out(data, *data.split(int(which), recipe.folds, recipe.seed), work / stage)
    left_out = [row for row in data.rows if row.gpu.name.lower().startswith(f"nvidia {which}")]
    names = {row.gpu.name for row in left_out}
    return rows_left_out(data, [row for row in data.rows if row.gpu.name not in names], left_out, work / stage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--work", type=Path, default=Path("build/transformer"))
    parser.add_argument(
        "stages", nargs="+", help="fold-0 to fold-9, networks (after fold-0), out-a100, out-a30, ablation, report"
    )
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    stages = [stage for stage in arguments.stages if stage != "report"]
    data = Data(arguments.data if stages else Path("nothing"))
    for stage in stages:
        (arguments.work / f"{stage}.json").write_text(json.dumps(run(stage, data, arguments.work)))
        print(stage, "done")
    if "report" in arguments.stages:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(transformer_report.markdown(arguments.work))
        print(OUT)


if __name__ == "__main__":
    main()
