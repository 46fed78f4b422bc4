"""Tables and plots of what benchmarks/deeppm.py trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from charts import CHART_STYLE
from scipy.stats import t as student_t

from joulecast.predictors.transformer.encoder import ROLES
from joulecast.rendering.plots import pyplot

OURS = "ours"
LARGER = "With more rows, and sequences as rarely as in the recipe that ships"
SHIPPED = "At the size of the recipe that ships"
NETWORK_CALLS = ((0, 50), (50, 100), (100, 150), (150, 200), (200, 10**6))
Fits = Mapping[str, Sequence[Mapping[str, Any]]]

HEAD = """Theirs, on basic blocks of x86 code: 10.2 % error of time and 12.3 % of power (12.7 % in its section IV-B); \
the standard encoder (A) loses 3 % in training loss and 5 % in accuracy, and an LSTM (Ithemal) is worse than DeepPM. \
Ours, on operations of GPUs: {train:,} of the device times of neusight2025 and nicolai2025 to learn from, {epochs} \
passes, half of the steps over synthetic networks of twelve operations (the recipe that ships learns from 150,000 \
times in 20 passes: a reduced size, so that every variant could be fitted with {seeds} seeds on one core, and errors \
are larger than in the card of any-gpu/transformer); {test:,} times of operations that none of them saw to be judged \
on. Every variant has four layers of width 32, learns the log ratio to the least time of physics, and is fitted to the \
same rows in the same order. Cells: mean over seeds +- their standard deviation.

Not the same as theirs, and why: values are read as vectors of numbers and not as words, because sizes of operations \
are numbers; each operation has a time of its own, because operations are measured alone; energies are those of \
physics, fitted to measured powers; Muon fits matrices instead of Adam.
"""

READ = """
On operations of GPUs, no part of DeepPM's form makes a difference beyond the noise: neither the division into stacks, \
nor the weighting by distance, positional encoding, the opcode-only stack or residuals without layer norm. An LSTM is \
better by a little, and quicker. What is counted of kernels leaves little to learn: with eleven tokens and the least \
time of the data sheet alone, one stack was worse by 2 points, and an LSTM by 7. A list of a network's operations has \
no order in which neighbours would matter as they do in code. So what ships stays as it is. Errors of time are near \
those that the paper has on blocks.
"""

WORDS = {
    "A: one stack, layer norm, no weighting": "a standard encoder (A)",
    "B: block": "one stack over the block (B)",
    "C: block and instruction": "the third stack left out (C)",
    "D: no weighting": "no weighting by distance (D)",
    "DeepPM: kinds and positions": "DeepPM's opcode-only third stack with positional encoding",
    "ours with positions": "positional encoding alone",
    "LSTM as in Ithemal": "an LSTM",
    "ours with layer norm, no weighting": "layer norm without weighting, in three stacks",
}


def by_variant(fits: Sequence[Mapping[str, Any]]) -> Fits:
    found = defaultdict(list)
    for fit in sorted(fits, key=lambda fit: fit["seed"]):
        found[fit["variant"]].append(fit)
    return found


def _cell(values: Sequence[float], scale: float = 100.0, digits: int = 1) -> str:
    found = scale * np.array(values, dtype=float)
    return f"{found.mean():.{digits}f} +- {found.std(ddof=1) if len(found) > 1 else 0:.{digits}f}"


def _of(fits: Sequence[Mapping[str, Any]], pick: Callable[[Mapping[str, Any]], float]) -> list[float]:
    return [pick(fit) for fit in fits]


def ablation(variants: Fits) -> Iterator[str]:
    yield "| variant | weights | CPU s | loss, alone | loss, networks | time, mean % | time, median % | power, mean % |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, fits in variants.items():
        losses = [
            _cell(_of(fits, lambda fit, key=key: fit["curves"][key][-1]), 1, 4)
            for key in ("loss_alone", "loss_together")
        ]
        yield (
            f"| {name} | {fits[0]['parameters']:,} | {np.mean(_of(fits, lambda fit: fit['seconds'])):.0f} | "
            f"{losses[0]} | {losses[1]} | {_cell(_of(fits, lambda fit: fit['time']['mean']))} | "
            f"{_cell(_of(fits, lambda fit: fit['time']['median']))} | "
            f"{_cell(_of(fits, lambda fit: fit['power']['mean']))} |"
        )


def lengths(variants: Fits) -> Iterator[str]:
    bins = [tuple(each["operations"]) for each in next(iter(variants.values()))[0]["by_length"]]
    yield "| variant | " + " | ".join(f"{low} to {high}" for low, high in bins) + " |"
    yield "| --- |" + " --- |" * len(bins)
    for name, fits in variants.items():
        cells = [_cell(_of(fits, lambda fit, n=n: fit["by_length"][n]["mean"])) for n in range(len(bins))]
        yield f"| {name} | {' | '.join(cells)} |"


def _learned_precisions(fit: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Networks in precisions that operations were learned in: none was measured in bf16."""
    return [network for network in fit["networks"] if network["precision"] != "bf16"]


def measured_networks(variants: Fits) -> Iterator[str]:
    calls = np.array([network["calls"] for network in _learned_precisions(next(iter(variants.values()))[0])])
    places = [np.flatnonzero((low <= calls) & (calls < high)) for low, high in NETWORK_CALLS]
    shown = [(edge, place) for edge, place in zip(NETWORK_CALLS, places, strict=True) if len(place)]
    titles = [f"{f'{low} to {high}' if high < 10**6 else f'over {low}'} ({len(p)})" for (low, high), p in shown]
    yield f"| variant | {' | '.join(titles)} |"
    yield "| --- |" + " --- |" * len(shown)
    for name, fits in variants.items():
        errors = [np.abs(np.expm1([network["time"] for network in _learned_precisions(fit)])) for fit in fits]
        yield f"| {name} | {' | '.join(_cell([error[place].mean() for error in errors]) for _, place in shown)} |"


def _half_width(differences: np.ndarray) -> float:
    """Half of the 95 % interval of a mean of at least two values, by Student's t."""
    count = len(differences)
    return float(student_t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count))


def verdicts(variants: Fits) -> Iterator[str]:
    """Whether each change makes time better or worse, by the differences between fits of the same seed."""
    ours = {fit["seed"]: fit["time"]["mean"] for fit in variants[OURS]}
    for name, words in WORDS.items():
        pairs = [(fit["time"]["mean"], ours[fit["seed"]]) for fit in variants.get(name, ()) if fit["seed"] in ours]
        if not pairs:
            continue
        difference = 100 * np.array([theirs - mine for theirs, mine in pairs])
        if len(difference) == 1:
            yield f"- {words}: {difference[0]:+.2f} points of mean error, one seed."
            continue
        half_width = _half_width(difference)
        decided = abs(difference.mean()) > half_width
        verdict = ("worse" if difference.mean() > 0 else "better") if decided else "not beyond the noise"
        yield f"- {words}: {difference.mean():+.2f} +- {half_width:.2f} points of mean error, {verdict}."


def with_more_rows(variants: Fits, title: str) -> Iterator[str]:
    """The ablation of a few variants at a larger size, as far as they have been fitted."""
    if OURS not in variants:
        return
    first = variants[OURS][0]
    yield f"\n### {title}\n"
    yield f"{first['train']:,} device times, {first['epochs']} passes: whether what is better above stays so.\n"
    yield from ablation(variants)
    yield ""
    yield from verdicts(variants)


def kinds(variants: Fits) -> Iterator[str]:
    found = variants[OURS][0]["by_kind"]
    shown = [kind for kind in ("matmul", "linear", "conv2d", "layer_norm", "softmax", "add") if kind in found]
    yield f"| variant | {' | '.join(shown)} |"
    yield "| --- |" + " --- |" * len(shown)
    for name, fits in variants.items():
        cells = [_cell(_of(fits, lambda fit, kind=kind: fit["by_kind"][kind]["mean"])) for kind in shown]
        yield f"| {name} | {' | '.join(cells)} |"


def draw_attention(variants: Fits, file: Path) -> bool:
    """Mean attention of the first layer over the tokens of eight operations; False where no fit has it."""
    found = {name: fits[0]["attention"] for name, fits in variants.items() if "attention" in fits[0]}
    if not found:
        return False
    plt = pyplot()
    with plt.rc_context({**CHART_STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 4), squeeze=False, layout="constrained")
        highest = max(np.quantile(scores, 0.995) for scores in found.values())
        for one, (name, scores) in zip(axes[0], found.items(), strict=True):
            drawn = one.imshow(scores, vmin=0, vmax=highest, cmap="viridis", interpolation="nearest")
            edges = np.arange(0, len(scores), len(ROLES)) - 0.5
            one.set_xticks(edges, range(1, len(edges) + 1))
            one.set_yticks(edges, range(1, len(edges) + 1))
            one.set_title(name)
            one.set_xlabel("attended to: tokens, by operation")
        axes[0][0].set_ylabel("attending: tokens, by operation")
        figure.colorbar(drawn, ax=axes, shrink=0.8, label="share of attention")
        figure.savefig(file, dpi=110)
        plt.close(figure)
    return True


def section(fits: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """The section of the page; the heatmap is written beside it."""
    variants = by_variant([fit for fit in fits if fit["run"] == "small"])
    first = variants[OURS][0]
    parts = [
        HEAD.format(**first, seeds=len(variants[OURS])),
        *ablation(variants),
        "\nAgainst ours, seed by seed, with the 95 % interval of the mean difference by Student's t:\n",
        *verdicts(variants),
        READ,
        *with_more_rows(by_variant([fit for fit in fits if fit["run"] == "larger"]), LARGER),
        *with_more_rows(by_variant([fit for fit in fits if fit["run"] == "shipped"]), SHIPPED),
        "\n### By kind, mean error of time in per cent\n",
        *kinds(variants),
        "\n### By length: unseen operations read as one sequence, error of their total time in per cent\n",
        "Drawn from one GPU and mode; their errors cancel, so that long sequences are the easier ones. Trained were "
        "sequences of 12.\n",
        *lengths(variants),
        "\n### By length: measured networks by their calls, error of time in per cent\n",
        "Parts read alone and added up, host and device overlapping, no correction learned from networks. Those in "
        "bf16 are left out: no operation was measured alone in it.\n",
        *measured_networks(variants),
    ]
    if draw_attention(variants, folder / "attention.png"):
        parts += [
            "\n### Where attention goes\n",
            "First layer, mean of heads, a sequence of eight operations of six tokens each. The weighting "
            "multiplies scores before the softmax: what is far away is not attended to less, but evenly, so that "
            "patterns fade away from the diagonal. Without it, the same tokens are attended to from everywhere.\n",
            "![attention](attention.png)",
        ]
    return "\n".join(parts)
