"""DeepPM's ablation on operations of GPUs: its model, ours, an LSTM as in Ithemal, three seeds of each.

    python benchmarks/deeppm.py --data build/datasets --work build/deeppm [--reduced | --runs shipped]

DeepPM (Shim et al., DATE 2022) predicts basic blocks of x86 code. Here a network stands for the block, an operation for
the instruction, its kind for the opcode. Every variant has four layers, is fitted to the same rows with the same seeds,
and is judged on operations that it has not seen. Each fit writes one JSON file into --work; fits that are there are not
repeated. `python benchmarks/published.py` makes the tables and plots from them. A fit takes about a minute of one core,
and one of the run "shipped", which is made only if it is asked for, six to nine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from deeppm_errors import log_ratios, power_log_ratios
from deeppm_variants import OperationLstm, Variant, VariantRecipe, starting_lstm, starting_variant

from joulecast.datasets import load
from joulecast.extraction import network_of
from joulecast.hardware import find_gpu
from joulecast.predictors.contract import Networks
from joulecast.predictors.evaluation.any_gpu import fit_hosts
from joulecast.predictors.fitting.fit import with_energies
from joulecast.predictors.measured import DeviceRow, device_rows, fold_of
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.recipes import TransformerRecipe
from joulecast.predictors.transformer.attentive import Attentive
from joulecast.predictors.transformer.encoder import ROLES, softmax
from joulecast.predictors.transformer.fit import Examples, fit_transformer

# Half of the steps read operations as synthetic networks, because blocks are all that DeepPM reads. To an operation
# that is read alone, stacks over a block and over an instruction are the same.
SIZE = {"epochs": 6, "most_rows": 24_000, "together": 0.5}
# Sequences as rarely as in the recipe that ships, and more rows: is a variant that won above better there, too?
LARGER = {"epochs": 8, "most_rows": 40_000}
REDUCED = {**SIZE, "epochs": 1, "most_rows": 1_000, "batch": 16}
HELD_FOLD = 1
LENGTHS = ((2, 50), (50, 100), (100, 150), (150, 200), (200, 300))
SEQUENCES = 24  # Of each length.
ONE_STACK = {"network_layers": 4, "operation_layers": 0, "kind_layers": 0}
# Name -> settings that differ from predictors/transformer.toml.
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {},
    "DeepPM: kinds and positions": {"operation_vector": "kind", "positional_encoding": True},
    "ours with positions": {"positional_encoding": True},
    "A: one stack, layer norm, no weighting": {**ONE_STACK, "layer_norm": True, "distance_weighting": False},
    "B: block": ONE_STACK,
    "C: block and instruction": {"network_layers": 2, "operation_layers": 2, "kind_layers": 0},
    "D: no weighting": {"distance_weighting": False},
    "LSTM as in Ithemal": {},
}
AGAIN: dict[str, dict[str, Any]] = {
    "ours": {},
    "A: one stack, layer norm, no weighting": VARIANTS["A: one stack, layer norm, no weighting"],
    "ours with layer norm, no weighting": {"layer_norm": True, "distance_weighting": False},
}
RUNS = {"small": (VARIANTS, SIZE, SEQUENCES, 3), "larger": (AGAIN, LARGER, 0, 3), "shipped": (AGAIN, {}, 0, 5)}
"""Name -> variants, size, sequences of each length, and seeds."""


def summary(log_ratio: Any) -> dict[str, float]:
    error = np.abs(np.expm1(log_ratio))
    return {"median": float(np.median(error)), "mean": float(error.mean()), "p90": float(np.quantile(error, 0.9))}


def by_kind(rows: Sequence[DeviceRow], log_ratio: Any) -> dict[str, Any]:
    kinds = np.array([row.operation.kind for row in rows])
    return {str(kind): summary(log_ratio[kinds == kind]) for kind in np.unique(kinds)}


def by_length(learned: Attentive, rows: Sequence[DeviceRow], sequences: int) -> list[dict[str, Any]]:
    """Errors of the total time of unseen operations that are read as one sequence, on one GPU in one mode."""
    examples = Examples.of(rows, learned.vocabulary)
    device_s = np.array([row.device_s for row in examples.rows])
    least_s = device_s / np.exp(examples.log_ratio)
    least = min(100, max(map(len, examples.groups)))  # In smaller groups the same operations come again and again.
    groups = [group for group in examples.groups if len(group) >= least]
    found = []
    for low, high in LENGTHS:
        draw = np.random.default_rng(low)
        errors = []
        for _ in range(sequences):
            places = draw.choice(groups[draw.integers(len(groups))], draw.integers(low, high))[None]
            read = examples.values[places], examples.families[places], examples.kinds[places]
            ratios = learned.encoder(*read)[0]
            errors.append(np.log((least_s[places[0]] * np.exp(ratios)).sum() / device_s[places[0]].sum()))
        found.append({"operations": [low, high], "sequences": sequences, **summary(np.array(errors))})
    return found


def of_networks(learned: Attentive, networks: Networks) -> list[dict[str, Any]]:
    """Errors of measured networks added up from operations, and how many operations they have."""
    hosts, found = fit_hosts(SharedByAll(learned), networks), []
    for gpu, m, network in networks:
        predictor = NetworkPredictor("", SharedByAll(learned).on(gpu, m.mode), hosts[m.mode])
        p = predictor.predict(network, m.clock_mhz)
        calls = sum(entry.count for entry in network)
        error = float(np.log(p.time_s / m.time_s))
        found.append({"calls": calls, "time": error, "mode": m.mode, "precision": m.precision})
    return found


def attention(learned: Attentive, rows: Sequence[DeviceRow], operations: int = 8) -> list[list[float]]:
    """Mean attention of the first layer over a sequence's tokens; shape (tokens, tokens)."""
    examples = Examples.of(rows, learned.vocabulary)
    group = max(examples.groups, key=len)
    places = np.random.default_rng(0).choice(group, operations)[None]
    encoder, length = learned.encoder, operations * len(ROLES)
    read = encoder.of_tokens(examples.values[places], examples.families[places], examples.kinds[places])
    weight, bias = (encoder.weights[f"over_network.0.attend.{name}"] for name in ("weight", "bias"))
    parts = (read.reshape(1, length, -1) @ weight.T + bias).reshape(1, length, 3, encoder.recipe.heads, -1)
    scores = [encoder.scores(parts[:, :, 0, head], parts[:, :, 1, head]) for head in range(encoder.recipe.heads)]
    return np.round(softmax(np.concatenate(scores), -1).mean(0), 5).tolist()


class Data:
    """All datasets below a folder, with the device times and the networks of all."""

    def __init__(self, folder: Path) -> None:
        self.datasets = [load(path.parent) for path in sorted(folder.rglob("card.json"))]
        self.rows = [row for dataset in self.datasets for row in device_rows(dataset)]
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

    def fold(self, held: int) -> tuple[list[DeviceRow], list[DeviceRow]]:
        """Rows outside and inside of a fold; an operation is in one fold in all modes and precisions, on all GPUs."""
        fold = fold_of({row.operation for row in self.rows}, 10, 0)
        outside, inside = ([r for r in self.rows if (fold[r.operation] == held) is mine] for mine in (False, True))
        return outside, inside


def fit(data: Data, folds: tuple[Any, Any], variant: str, recipe: TransformerRecipe, sequences: int) -> dict[str, Any]:
    """Fit a variant to the first fold, and judge it on the second.

    Args:
        data: All measurements.
        folds: Rows to learn from, and rows to predict.
        variant: Its name.
        recipe: Its settings.
        sequences: How many sequences of each length are predicted; 0 for operations alone, which is quicker.
    """
    train, test = folds
    form = (OperationLstm, starting_lstm) if variant.startswith("LSTM") else (Variant, starting_variant)
    start = time.process_time()
    learned = fit_transformer(data.datasets, train, recipe, *form)
    seconds = time.process_time() - start
    learned = with_energies(learned, train, data.networks)
    ratios, powered = log_ratios(learned, test), [row for row in test if row.power_w is not None]
    encoder = learned.encoder
    result = {
        "variant": variant,
        "seed": recipe.seed,
        "epochs": recipe.epochs,
        "train": min(len(train), recipe.most_rows),
        "test": len(test),
        "test_power": len(powered),
        "seconds": seconds,
        "parameters": sum(each.size for name, each in encoder.weights.items() if name not in ("lowest", "highest")),
        "curves": encoder.curves,
        "time": summary(ratios),
        "power": summary(power_log_ratios(learned, powered)["power"]),
        "by_kind": by_kind(test, ratios),
    }
    if sequences:
        result["by_length"] = by_length(learned, test, sequences)
        result["networks"] = of_networks(learned, data.networks)
    if sequences and recipe.seed == 0 and variant in ("ours", "D: no weighting", "DeepPM: kinds and positions"):
        result["attention"] = attention(learned, test)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--work", type=Path, default=Path("build/deeppm"))
    parser.add_argument("--reduced", action="store_true", help="one seed, few rows: only to see that it runs")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=["small", "larger"], help="sizes of the fits")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    data = Data(arguments.data)
    folds = data.fold(HELD_FOLD)
    for name in arguments.runs:
        variants, size, sequences, seeds = RUNS[name]
        if arguments.reduced:
            size, sequences, seeds = REDUCED, min(sequences, 2), 1
        for seed in range(seeds):
            for number, (variant, settings) in enumerate(variants.items()):
                file = arguments.work / f"{name}-{number}-{seed}.json"
                if not file.is_file():
                    recipe = replace(VariantRecipe(), seed=seed, **size, **settings)
                    made = fit(data, folds, variant, recipe, sequences)
                    file.write_text(json.dumps({"run": name, **made}))
                    print(name, variant, seed, f"{made['seconds']:.0f} s", made["time"], made["power"], flush=True)


if __name__ == "__main__":
    main()
