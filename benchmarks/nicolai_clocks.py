"""Nicolai's figures 6.1, 6.2 and 6.5 to 6.16 by prediction: three GPU settings, and six clocks of the A30.

Predictions are those of the shipped predictors, so that nothing here needs measurements. Fourteen of his eighteen
networks are known from his data; four others take the places of those that are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from charts import CHART_STYLE, svg_of

import joulecast
from joulecast.rendering.plots import pyplot

CLOCKS_MHZ = (210, 300, 600, 900, 1200, 1440)
ENERGY_MHZ, EDP_MHZ = 900, 1200  # Where he finds the optima, for every network in both modes.
MODES = ("inference", "training")
HIS = (
    ("resnet18", 32),
    ("resnet34", 56),
    ("alexnet", 224),
    ("resnet18", 224),
    ("efficientnet_b0", 224),
    ("resnet34", 224),
    ("resnet18", 299),
    ("resnet50", 224),
    ("resnet50", 299),
    ("efficientnet_v2_m", 224),
    ("swin_t", 224),
    ("swin_v2_t", 224),
    ("convnext_base", 224),
    ("swin_b", 224),
)
OTHERS = (("densenet121", 224), ("vgg16", 224), ("wide_resnet50_2", 224), ("vit_b_16", 224))
BATCH = 32
# Name -> GPU and precision, in his order of energies.
SETTINGS = {"A30, tensor cores": ("A30", "default"), "2080 Ti": ("RTX 2080 Ti", "default"), "A30": ("A30", "fp32")}


class Sweep(NamedTuple):
    """A network at the A30's clocks.

    Args:
        name: Network and image size.
        predictions: One for each of CLOCKS_MHZ.
    """

    name: str
    mode: str
    predictions: tuple[Any, ...]

    def best_mhz(self, quantity: str) -> int:
        values = [getattr(p, quantity) for p in self.predictions]
        return CLOCKS_MHZ[values.index(min(values))]

    def regret(self, quantity: str, clock_mhz: int) -> float:
        """How much more his clock costs than the best of the six by our prediction."""
        values = [getattr(p, quantity) for p in self.predictions]
        return float(values[CLOCKS_MHZ.index(clock_mhz)] / min(values) - 1)


def sweeps(networks: Sequence[tuple[str, int]]) -> list[Sweep]:
    """Every network at every clock, in both modes."""
    return [
        Sweep(
            f"{name} {size}",
            mode,
            tuple(joulecast.predict(name, (BATCH, 3, size, size), "A30", clock, mode=mode) for clock in CLOCKS_MHZ),
        )
        for mode in MODES
        for name, size in networks
    ]


def energies_j(name: str, size: int, mode: str) -> dict[str, float]:
    """Joules of a network by setting."""
    return {
        setting: joulecast.predict(name, (BATCH, 3, size, size), gpu, mode=mode, precision=precision).energy_j
        for setting, (gpu, precision) in SETTINGS.items()
    }


def settings_table(networks: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Figures 6.1 and 6.2: energies of the three settings, and whether his order comes out."""
    yield "| mode | network | " + " | ".join(f"{name}, J" for name in SETTINGS) + " | tensor cores least |"
    yield "| --- | --- | --- | --- | --- | --- |"
    least = between = count = 0
    for mode in MODES:
        for name, size in networks:
            with_cores, turing, without = energies_j(name, size, mode).values()
            count, least = count + 1, least + (with_cores < min(turing, without))
            between += with_cores < turing < without
            yield (
                f"| {mode} | {name} {size} | {with_cores:.3f} | {turing:.3f} | {without:.3f} "
                f"| {'yes' if with_cores < min(turing, without) else 'no'} |"
            )
    yield (
        f"\nThe A30 with tensor cores needs least for {least} of {count}; his whole order (A30 with tensor cores, 2080 "
        f"Ti, A30 without) comes out for {between} of {count}."
    )


def clock_table(found: Sequence[Sweep]) -> Iterator[str]:
    """Figures 6.5 to 6.16: the best clocks, and what his would cost more than they."""
    yield "| mode | network | least energy, MHz | regret of 900 MHz | least EDP, MHz | regret of 1200 MHz |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for sweep in found:
        energy, product = sweep.regret("energy_j", ENERGY_MHZ), sweep.regret("edp_js", EDP_MHZ)
        yield (
            f"| {sweep.mode} | {sweep.name} | {sweep.best_mhz('energy_j')} | {energy:.1%} "
            f"| {sweep.best_mhz('edp_js')} | {product:.1%} |"
        )
    for what, quantity, clock_mhz in (("energy", "energy_j", ENERGY_MHZ), ("EDP", "edp_js", EDP_MHZ)):
        hits = sum(sweep.best_mhz(quantity) == clock_mhz for sweep in found)
        regrets = sorted(sweep.regret(quantity, clock_mhz) for sweep in found)
        small = sum(regret < 0.01 for regret in regrets)
        yield (
            f"\n{what}: {hits} of {len(found)} at {clock_mhz} MHz ({hits / len(found):.0%}, goal 95 %); regret under "
            f"1 % for {small} ({small / len(found):.0%}), {sum(regrets) / len(regrets):.2%} in the mean, "
            f"{regrets[-1]:.1%} at worst."
        )


def draw(found: Sequence[Sweep], folder: Path) -> list[Path]:
    """One plot for each mode and quantity: bars of six clocks for every network."""
    plt, files = pyplot(), []
    quantities = {"time": ("time_s", "s"), "energy": ("energy_j", "J"), "edp": ("edp_js", "J s")}
    with plt.rc_context(CHART_STYLE):
        for mode in MODES:
            mine = [sweep for sweep in found if sweep.mode == mode]
            for title, (quantity, unit) in quantities.items():
                figure, axes = plt.subplots(figsize=(9, 3.6))
                for place, clock in enumerate(CLOCKS_MHZ):
                    heights = [getattr(sweep.predictions[place], quantity) for sweep in mine]
                    where = [number + (place - 2.5) * 0.13 for number in range(len(mine))]
                    axes.bar(where, heights, 0.13, label=f"{clock} MHz", color=plt.cm.viridis(place / 5.5))
                axes.set_yscale("log")
                axes.set_xticks(range(len(mine)), [sweep.name for sweep in mine], rotation=45, ha="right")
                axes.set_ylabel(unit)
                axes.set_title(f"{'EDP' if title == 'edp' else title.capitalize()} of one {mode} iteration on the A30")
                axes.legend(fontsize=7, ncols=6, loc="upper left", frameon=False)
                axes.margins(x=0.01, y=0.12)
                figure.tight_layout()
                files.append(folder / f"clocks-{mode}-{title}.svg")
                files[-1].write_text(svg_of(figure), encoding="utf-8")
                plt.close(figure)
    return files


ORDER = """His order of energies is A30 with tensor cores < 2080 Ti < A30 without. By our prediction its first step \
comes out for networks with convolutions, and its second step for none: the 2080 Ti needs most. The last table of the \
section before this one says why: two runs of the same operations on the 2080 Ti differ in power by half, his order \
needs the lower readings, and we learn from the higher ones. Swin and ConvNeXt hold almost no convolutions, so tensor \
cores, which PyTorch's defaults leave to convolutions, hardly change them.
"""
SMALL = """
Regret is what his clock costs more than the best of the six, both by our prediction: he published no measurements at \
other clocks, so the true regret is not known. Where the optimum lies elsewhere, the network waits for the host \
(ResNets of 32 and 56 pixels) or for memory (EfficientNet-B0): a lower clock costs it little time, by our prediction. \
He names 900 and 1200 MHz for these as well. On an A100 the one network of energaizer2026 that waits for the host at \
all clocks (GPT-2 in bf16, 8 x 128 tokens) does need least energy at a lower clock, 690 MHz (0.49 of the highest), \
where those that are bound by the GPU need least at 960 MHz (0.68). So nothing is changed for the host-bound ones.
"""


def section(folder: Path, *, reduced: bool) -> str:
    """The section of the page; plots are written beside it."""
    networks = HIS[:2] if reduced else (*HIS, *OTHERS)
    found = sweeps(networks)
    lines = ["### Three settings (figures 6.1 and 6.2)\n", ORDER, *settings_table(networks[: len(HIS)])]
    lines += ["\n### Six clocks (figures 6.5 to 6.16)\n"]
    lines += [
        f"Predicted, {len(networks)} networks in two modes; {', '.join(n for n, _ in OTHERS)} stand in for those "
    ]
    lines += ["of his that cannot be had.\n", *clock_table(found), SMALL]
    lines += [f"![{file.stem}]({file.name})\n" for file in draw(found, folder)]
    return "\n".join(lines)
