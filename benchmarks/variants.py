"""Variants of a model beside the first: joules by phase, and module by module (SMARAGDINE, figure 8).

    python benchmarks/variants.py bert_base 8,128 --gpu A30 --variant num_hidden_layers=6 --variant albert_base

Repeated layers are added up. Printed are Pearson's correlation (PCC) of the joules of the modules that both have, and
the mean of their differences with its sign (MED), positive where the variant needs more. Without --gpu the variants run
here, on the CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import Any

import joulecast
from joulecast.accounting.model_share import tree_by_module
from joulecast.cli.options import named_values
from joulecast.cli.printing import table
from joulecast.energy import EnergyTree
from joulecast.energy.comparison import comparison
from joulecast.errors import JoulecastError, needing, with_extra
from joulecast.operations.inputs import parse_shapes
from joulecast.units import si


def tree_of(model: str, options: dict[str, Any], shape: Any, mode: str, gpu: str | None) -> EnergyTree:
    """The joules of a variant, predicted or measured here, with repeated layers added up."""
    if gpu is not None:
        return joulecast.predict(model, shape, gpu, mode=mode, model_options=options or None).tree().summarized()
    with needing("running a variant needs torch; with --gpu it is predicted", with_extra("torch")):
        from joulecast.extraction.models.named_models import build_to_run
    return joulecast.account(build_to_run(model, options or None), shape, mode=mode).tree().summarized()


def row(first: dict[Any, float], tree: EnergyTree) -> dict[str, Any]:
    """Joules of a variant by phase, and how the joules of its modules differ from those of the first."""
    phases: dict[str | None, float] = defaultdict(float)
    for node in tree.root.walk():
        phases[node.phase] += node.own.energy_j
    keyed = ({(*key, "module", ""): joules for key, joules in each.items()} for each in (first, tree_by_module(tree)))
    found = comparison(*keyed)
    med = sum(gap.difference_j for gap in found.gaps) / len(found.gaps) if found.gaps else None
    joules = {"forward_j": phases["forward"], "backward_j": phases["backward"], "energy_j": tree.total.energy_j}
    return {**joules, "shared_modules": len(found.gaps), "pcc": found.pearson, "med_j": med}


def study(model: str, shape: Any, variants: list[str], mode: str, gpu: str | None) -> list[dict[str, Any]]:
    """A row for the model and one for each variant: options such as "num_hidden_layers=6", or another model."""
    rows: list[dict[str, Any]] = []
    first: dict[Any, float] = {}
    for text in ("", *variants):
        words = text.split()
        names = [word for word in words if "=" not in word]
        options = named_values([word for word in words if "=" in word], "an option of a model")
        tree = tree_of(names[0] if names else model, options, shape, mode, gpu)
        first = first or tree_by_module(tree)
        rows.append({"variant": text or model, **row(first, tree)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("shape", nargs="+")
    parser.add_argument("--gpu", help="predict on this GPU; by default the variants run here")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--variant", action="append", default=[], help="options of the model, or another model")
    a = parser.parse_args()
    mode = "training" if a.training else "inference"
    rows = study(a.model, parse_shapes(a.shape), a.variant, mode, a.gpu)
    cells = [
        [
            each["variant"],
            *(si(each[f"{name}_j"], "J") for name in ("forward", "backward", "energy")),
            str(each["shared_modules"]),
            "-" if each["pcc"] is None else f"{each['pcc']:.3f}",
            "-" if each["med_j"] is None else f"{'-' if each['med_j'] < 0 else '+'}{si(abs(each['med_j']), 'J')}",
        ]
        for each in rows
    ]
    header = ["variant", "forward", "backward", "all", "shared modules", "PCC", "MED"]
    where = f"predicted on {a.gpu}" if a.gpu else "run here"
    print(f"{where}, {mode}\n\n{table(header, cells, frozenset(range(1, 7)))}")


if __name__ == "__main__":
    try:
        main()
    except JoulecastError as error:
        sys.exit(f"error: {error}")
