"""DeepPM's ablation with more rows and more seeds than benchmarks/deeppm.py, and at the size of the recipe that ships.

    python benchmarks/deeppm_sizes.py --data build/datasets --work build/deeppm-sizes

Every fit writes one JSON file into --work; fits that are there are not repeated, so it can be stopped at any time.
`python benchmarks/published.py deeppm_sizes` makes the tables of what is there. With 40,000 rows a fit takes a minute
of one core, at the size that ships six to nine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deeppm
from deeppm_tables import ablation, by_variant, verdicts

from joulecast.predictors.recipes import TransformerRecipe

ABLATION = {name: deeppm.VARIANTS[name] for name in deeppm.VARIANTS if name == "ours" or name[1] == ":"} | {
    "ours with layer norm, no weighting": deeppm.AGAIN["ours with layer norm, no weighting"]
}
RUNS: dict[str, tuple[str, dict[str, Any], Sequence[str], int]] = {
    "larger": ("With more rows, and sequences as rarely as in the recipe that ships", deeppm.LARGER, [*ABLATION], 5),
    "shipped": (
        "At the size of the recipe that ships",
        {},
        ["ours", "A: one stack, layer norm, no weighting", "ours with layer norm, no weighting"],
        3,
    ),
}
"""Name -> title, size, variants and seeds."""


def section(work: Path) -> str:
    """The tables of the fits that are there."""
    fits = [json.loads(file.read_text("utf-8")) for file in sorted(work.glob("*.json"))]
    parts = []
    for run, (title, *_) in RUNS.items():
        variants = by_variant([each for each in fits if each["run"] == run])
        if "ours" not in variants:
            continue
        first = variants["ours"][0]
        seeds = ", ".join(f"{len(found)} of {name}" for name, found in variants.items())
        parts += [
            f"### {title}\n",
            f"{first['train']:,} device times, {first['epochs']} passes. Seeds: {seeds}.\n",
            *ablation(variants),
            "\nAgainst ours, seed by seed, with the 95 % interval of the mean difference by Student's t:\n",
            *verdicts(variants),
            "",
        ]
    return "\n".join(parts) or f"{work} has no trainings: `python benchmarks/deeppm_sizes.py` makes them."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--work", type=Path, default=Path("build/deeppm-sizes"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    data = deeppm.Data(arguments.data)
    folds = data.fold(deeppm.HELD_FOLD)
    for run, (_, size, variants, seeds) in RUNS.items():
        for seed in range(seeds):
            for variant in variants:
                file = arguments.work / f"{run}-{[*ABLATION].index(variant)}-{seed}.json"
                if not file.is_file():
                    recipe = replace(TransformerRecipe(), seed=seed, **size, **ABLATION[variant])
                    made = deeppm.fit(data, folds, variant, recipe, 0)
                    file.write_text(json.dumps({"run": run, **made}))
                    print(run, variant, seed, f"{made['seconds']:.0f} s", made["time"], made["power"], flush=True)


if __name__ == "__main__":
    main()
