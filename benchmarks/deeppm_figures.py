"""DeepPM's figures of training and of power: loss over passes, and errors of time and power by length.

    python benchmarks/deeppm_figures.py [--data build/datasets] [--out build/deeppm-figures] [--reduced]

Fits our transformer and the paper's standard encoder (A) once each at the size of benchmarks/deeppm.py, a few minutes
of one core together, prints both tables, and draws them. The power of a sequence is its energy over its time, of
operations that were not learned from and whose power was measured (A30 and RTX 2080 Ti). DeepPM is 12.3 % off.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from charts import CHART_STYLE
from deeppm import HELD_FOLD, LENGTHS, REDUCED, SEQUENCES, SIZE, VARIANTS, Data, summary
from deeppm_variants import Variant, VariantRecipe, starting_variant

from joulecast.predictors.evaluation.any_gpu import errors_on
from joulecast.predictors.fitting.fit import with_energies
from joulecast.predictors.measured import DeviceRow
from joulecast.predictors.transformer.attentive import Attentive
from joulecast.predictors.transformer.fit import Examples, fit_transformer
from joulecast.rendering.pictures import COLOURS
from joulecast.rendering.plots import pyplot

SHOWN = ("ours", "A: one stack, layer norm, no weighting")


def by_length(learned: Attentive, rows: Sequence[DeviceRow], sequences: int) -> list[dict[str, Any]]:
    """Errors of time and power of unseen operations that are read as one sequence, by its length."""
    examples = Examples.of([row for row in rows if row.power_w is not None], learned.vocabulary)
    device_s, measured_w = np.array([(row.device_s, row.power_w) for row in examples.rows], dtype=float).T
    least_s = device_s / np.exp(examples.log_ratio)
    watts = errors_on("held out", examples.rows, learned, learned).predicted["power"]
    groups = [group for group in examples.groups if len(group) >= min(100, max(map(len, examples.groups)))]
    found = []
    for low, high in LENGTHS:
        draw, time, power = np.random.default_rng(low), [], []
        for _ in range(sequences):
            places = draw.choice(groups[draw.integers(len(groups))], draw.integers(low, high))[None]
            read = examples.values[places], examples.families[places], examples.kinds[places]
            here = places[0]
            seconds = least_s[here] * np.exp(learned.encoder(*read)[0])
            time.append(np.log(seconds.sum() / device_s[here].sum()))
            mean_w = (measured_w[here] * device_s[here]).sum() / device_s[here].sum()
            power.append(np.log((watts[here] * seconds).sum() / seconds.sum() / mean_w))
        found.append({"operations": (low, high), "time": summary(np.array(time)), "power": summary(np.array(power))})
    return found


def tables(fits: Mapping[str, tuple[Attentive, list[dict[str, Any]]]]) -> str:
    """Both tables, as text."""
    lines = ["loss after each pass, operations alone / in sequences"]
    for name, (learned, _) in fits.items():
        curves = learned.encoder.curves
        pairs = zip(curves["loss_alone"], curves["loss_together"], strict=True)
        lines.append(f"  {name:40} {'  '.join(f'{alone:.3f} / {together:.3f}' for alone, together in pairs)}")
    for quantity in ("time", "power"):
        lines.append(f"{quantity} of a sequence by its operations, mean error")
        for name, (_, lengths) in fits.items():
            cells = (
                f"{low} to {high}: {100 * e[quantity]['mean']:4.1f} %"
                for e in lengths
                for low, high in [e["operations"]]
            )
            lines.append(f"  {name:40} {'   '.join(cells)}")
    return "\n".join(lines)


def draw(fits: Mapping[str, tuple[Attentive, list[dict[str, Any]]]], file: Path) -> None:
    """Loss over passes, error of time and error of power by length, side by side."""
    plt = pyplot()
    with plt.rc_context(CHART_STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
        for (name, (learned, lengths)), colour in zip(fits.items(), COLOURS, strict=False):
            curves = learned.encoder.curves
            for key, style in (("loss_alone", "o-"), ("loss_together", "o--")):
                axes[0].plot(range(1, len(curves[key]) + 1), curves[key], style, color=colour, markersize=3)
            for one, quantity in zip(axes[1:], ("time", "power"), strict=True):
                errors = [100 * each[quantity]["mean"] for each in lengths]
                one.plot([np.mean(each["operations"]) for each in lengths], errors, "o-", color=colour, label=name)
        axes[0].set(title="Loss: alone, and in sequences (dashed)", xlabel="pass")
        for one, quantity in zip(axes[1:], ("time", "power"), strict=True):
            one.set(title=f"Error of {quantity} by length, %", xlabel="operations of a sequence", ylim=(0, None))
        axes[2].legend(frameon=False, fontsize=7)
        figure.savefig(file)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--out", type=Path, default=Path("build/deeppm-figures"))
    parser.add_argument("--reduced", action="store_true", help="few rows: only to see that it runs")
    arguments = parser.parse_args()
    if not any(arguments.data.glob("*/*")):
        makes = f"joulecast datasets import SOURCE FOLDER --out {arguments.data}"
        parser.error(
            f"no datasets in {arguments.data}: make those of nicolai2025, neusight2025 and energaizer2026: `{makes}`"
        )
    data = Data(arguments.data)
    train, test = data.fold(HELD_FOLD)
    fits = {}
    for name in SHOWN:
        recipe = replace(VariantRecipe(), **(REDUCED if arguments.reduced else SIZE), **VARIANTS[name])
        learned = fit_transformer(data.datasets, train, recipe, Variant, starting_variant)
        learned = with_energies(learned, train, data.networks)
        fits[name] = learned, by_length(learned, test, 2 if arguments.reduced else SEQUENCES)
    print(tables(fits))
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw(fits, arguments.out / "deeppm.svg")


if __name__ == "__main__":
    main()
