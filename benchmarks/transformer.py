"""How good the transformer is beside what ships, physics and plain sums: benchmarks/transformer/REPORT.md.

    python benchmarks/transformer.py --data build/datasets fold chips ablation report

Datasets are those of `joulecast datasets import`, found in all folders below --data. Every stage writes a JSON file
into --work, so that they can run one after another or side by side; `report` reads what is there. On one core `fold`
takes 8 minutes, `chips` 20 and `ablation` 4.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import transformer_report

from joulecast.datasets import load
from joulecast.extraction import network_of
from joulecast.hardware import find_gpu
from joulecast.predictors.contract import Networks, ResidualModel
from joulecast.predictors.evaluation.any_gpu import Known, fit_hosts, log_ratios
from joulecast.predictors.fitting.fit import fit_operations, load_recipe, network_learner
from joulecast.predictors.measured.rows import DeviceRow, device_rows
from joulecast.predictors.measured.splits import fold_of
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.prepared import NetworkPredictor
from joulecast.predictors.recipes import Recipe, RooflineRecipe, TransformerRecipe

OUT = Path(__file__).with_name("transformer") / "REPORT.md"
SHIPPED = Path(__file__).parent.parent / "predictors" / "any-gpu.toml"
# Settings were chosen by their errors on the first fold, so the second fold is the test.
CHOSEN_ON, JUDGED_ON = 0, 1
ABLATION = {"epochs": 8, "most_rows": 40_000}
VARIANTS: dict[str, dict[str, Any]] = {
    "as DeepPM": {},
    "standard encoder (layer norm)": {"layer_norm": True},
    "without distance weighting": {"distance_weighting": False},
    "without the three stacks (one)": {"stacks": "one"},
    "AdamW instead of Muon": {"matrix_learning_rate": 0.0},
}

Rows = Sequence[DeviceRow]


class Data:
    """All datasets below a folder, and the rows to which recipes are fitted."""

    def __init__(self, folder: Path, epochs: int) -> None:
        self.recipes: Mapping[str, Recipe] = {
            "transformer": TransformerRecipe(epochs=epochs),
            "both": load_recipe(SHIPPED),
            "physics": RooflineRecipe(),
        }
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

    def fold(self, held: int) -> tuple[Rows, Rows]:
        """Rows outside and inside of a fold. An operation is in the same fold in both modes, all precisions, and on all
        GPUs.
        """
        fold = fold_of({row.operation for row in self.rows}, 10, 0)
        outside, inside = ([r for r in self.rows if (fold[r.operation] == held) is mine] for mine in (False, True))
        return outside, inside


def compared(data: Data, train: Rows, test: Rows) -> tuple[dict[str, Any], dict[str, ResidualModel]]:
    """Fit all recipes on the same rows; return the log ratios of predicted to measured device time on the others."""
    result: dict[str, Any] = {
        "train": len(train),
        "epochs": data.recipes["transformer"].to_dict()["epochs"],
        "rows": [[row.gpu.name, row.operation.kind, row.operation.mode] for row in test],
        "seconds": {},
        "log_ratios": {},
    }
    fitted = {}
    for name, recipe in data.recipes.items():
        start = time.process_time()
        fitted[name] = fit_operations(data.datasets, train, recipe)
        result["seconds"][name] = time.process_time() - start
        result["log_ratios"][name] = log_ratios(fitted[name], test).tolist()
        print(name, f"{result['seconds'][name]:.0f} s of CPU time", flush=True)
    return result, fitted


def fold(data: Data) -> dict[str, Any]:
    """Errors on operations that were left out of training."""
    return compared(data, *data.fold(JUDGED_ON))[0]


def chips(data: Data) -> dict[str, Any]:
    """Errors on chips whose networks were measured, each left out with all of its measurements."""
    result: dict[str, Any] = {"networks": []}
    for chip in dict.fromkeys(gpu.chip for gpu, _, _ in data.networks):
        train, test = ([r for r in data.rows if (r.gpu.chip == chip) is same] for same in (False, True))
        result[chip or ""], fitted = compared(data, train, test)
        here, elsewhere = ([n for n in data.networks if (n[0].chip == chip) is same] for same in (True, False))
        for name, recipe in data.recipes.items():
            learn = network_learner(fitted[name], train, recipe)
            for known, others in (("nothing", elsewhere), ("networks", data.networks)):
                result["networks"] += networks_left_out(name, learn, here, others, known)
    return result


def networks_left_out(
    recipe: str,
    learn: Callable[[Networks], ResidualModel],
    mine: Networks,
    others: Networks,
    known: Known,
) -> list[dict[str, Any]]:
    """Relative errors of time, energy and power, by name left out: as a whole, and as a sum."""
    found = []
    for network_name in dict.fromkeys(m.network for _, m, _ in mine):
        of_other_names = [n for n in others if n[1].network != network_name]
        learned = learn(of_other_names)
        hosts = fit_hosts(learned, of_other_names)
        for gpu, m, network in (n for n in mine if n[1].network == network_name):
            errors = {}
            for how, composition in (("whole", "overlap"), ("sum", "sum")):
                predictor = NetworkPredictor("", SharedByAll(learned).on(gpu, m.mode), hosts[m.mode])
                p = predictor.predict(network, m.clock_mhz, composition=composition)
                errors[how] = [p.time_s / m.time_s - 1, p.energy_j / m.energy_j - 1, p.power_w / m.power_w - 1]
            found.append(
                {"recipe": recipe, "known": known, "gpu": gpu.name, "network": m.network, "mode": m.mode}
                | {"precision": m.precision, **errors}
            )
    return found


def ablation(data: Data) -> dict[str, Any]:
    """Errors of every variant with fewer rows and passes, on one fold."""
    train, test = data.fold(CHOSEN_ON)
    result: dict[str, Any] = {"settings": ABLATION, "rows": [[r.gpu.name, r.operation.kind] for r in test]}
    variants = {}
    for name, settings in VARIANTS.items():
        start = time.process_time()
        learned = fit_operations(data.datasets, train, replace(TransformerRecipe(), **ABLATION, **settings))
        seconds = time.process_time() - start
        variants[name] = {"seconds": seconds, "log_ratios": log_ratios(learned, test).tolist()}
        print(name, f"{seconds:.0f} s of CPU time", flush=True)
    result["variants"] = variants
    return result


STAGES: Mapping[str, Callable[[Data], dict[str, Any]]] = {"fold": fold, "chips": chips, "ablation": ablation}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--work", type=Path, default=Path("build/transformer"))
    parser.add_argument("--epochs", type=int, default=TransformerRecipe().epochs, help="Passes of the transformer.")
    parser.add_argument("stages", nargs="+", choices=[*STAGES, "report"])
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    stages = [stage for stage in arguments.stages if stage != "report"]
    data = Data(arguments.data if stages else Path("nothing"), arguments.epochs)
    for stage in stages:
        (arguments.work / f"{stage}.json").write_text(json.dumps(STAGES[stage](data)))
        print(stage, "done", flush=True)
    if "report" in arguments.stages:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(transformer_report.markdown(arguments.work))
        print(OUT)


if __name__ == "__main__":
    main()
