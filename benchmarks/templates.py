"""Compares templates with extraction: `python benchmarks/templates.py [NAME ...]`, about half an hour for all.

Every model in both modes, and decoding where it can, at six shapes that its templates were not fitted to, odd ones
among them, in changing precisions and with and without an optimizer. Writes benchmarks/TEMPLATES.md for all of them.
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

from joulecast.errors import JoulecastError
from joulecast.extraction.job import Job
from joulecast.extraction.models.named_models import build
from joulecast.extraction.templates import answer, store
from joulecast.extraction.traced_models import traced
from joulecast.operations.attributes import HALF_PRECISIONS
from joulecast.operations.inputs import Inputs
from joulecast.operations.network import Network

SHAPES, DRAWN = 6, 60
OUT = Path(__file__).with_name("TEMPLATES.md")
PRECISIONS = itertools.cycle(["default", "bf16", "fp32", "tf32", "fp16"])
OPTIMIZERS = itertools.cycle([None, "sgd", "adamw"])
USUAL = {"batch": (1, 257), "height": (32, 640), "width": (32, 640), "tokens": (1, 2048), "cache": (1, 2048)}


def usual_sizes(model: store.ModelTemplates, setting: store.Setting, dice: random.Random) -> list[tuple[int, ...]]:
    """Common sizes that a template covers; every second one is odd if possible."""
    names = [*model.size_names, "cache"]
    sizes: dict[tuple[int, ...], None] = {}
    for odd in itertools.islice(itertools.cycle([True, False]), DRAWN):
        regime = dice.choice(setting.regimes)
        drawn = []
        for name, (low, high) in zip(names, regime.ranges, strict=False):
            most = max(low, min(high, USUAL[name][1]))
            n = dice.randint(low, most)
            drawn.append(n - 1 if odd and n % 2 == 0 and n > low else n)
        if model.limits.allow(tuple(drawn)):
            sizes[tuple(drawn)] = None
    return list(sizes)


def extracted(module: object, name: str, inputs: Inputs, cache_length: int | None, **options: object) -> Network | None:
    """The network by tracing with torch; None if tracing fails."""
    try:
        return traced(module, inputs, Job(cache_length=cache_length, **options), name)
    except JoulecastError:
        return None


def compare(name: str) -> list[tuple[str, int, int, list[str]]]:
    """For each setting: its name, and the shapes that were compared, that both refuse, and that differ."""
    module, model, dice = build(name), store.load(name), random.Random(f"benchmark {name}")
    rows = []
    for key, setting in model.settings.items():
        if key.split()[-1] in HALF_PRECISIONS:
            continue  # compared below
        mode, cached = key.split()[0], key.endswith("cached")
        equal, refused, different = 0, 0, []
        for sizes in usual_sizes(model, setting, dice):
            if equal + len(different) == SHAPES:
                break
            given = dict(zip(model.size_names, sizes, strict=False))
            shape = next(iter(model.inputs.values()))
            inputs = Inputs.of(tuple(n if isinstance(n, int) else given[n] for n in shape))
            cache_length = sizes[-1] if cached else None
            optimizer = next(OPTIMIZERS) if mode == "training" else None
            asked = {"mode": mode, "precision": next(PRECISIONS), "optimizer": optimizer}
            mine = answer(name, Job(name, inputs, cache_length=cache_length, **asked))
            theirs = extracted(module, name, inputs, cache_length, **asked)
            if mine is None and theirs is None:
                refused += 1
            elif mine == theirs:
                equal += 1
            else:
                different.append(f"{'x'.join(map(str, sizes))} {asked}" + (" (no answer)" if mine is None else ""))
        rows.append((key, equal, refused, different))
    return rows


def spans(setting: store.Setting, names: tuple[str, ...]) -> str:
    """The sizes that a setting covers."""
    columns = zip(*(regime.ranges for regime in setting.regimes), strict=True)
    spans_of = [sorted(set(column)) for column in columns]
    return ", ".join(
        f"{name} {ranges[0][0]}" + (f" to {ranges[-1][1]}" if ranges[-1][1] > ranges[0][0] else "")
        for name, ranges in zip([*names, "cache"], spans_of, strict=False)
    )


def main() -> None:
    asked = sys.argv[1:]
    lines, wrong, compared = [], 0, 0
    for name in asked or store.names():
        model = store.load(name)
        for key, equal, refused, different in compare(name):
            held = spans(model.settings[key], model.size_names)
            total = equal + len(different)
            lines.append(f"| {name} | {key} | {held} | {equal} of {total} | {refused} |")
            print(lines[-1], *different, sep="\n  ", flush=True)
            compared, wrong = compared + total, wrong + len(different)
    print(f"{compared - wrong} of {compared} equal")
    if not asked:
        head = [
            "# Templates against extraction",
            "",
            f"Made by `python benchmarks/templates.py`; do not edit. {compared - wrong} of {compared} networks equal, "
            f"{len(store.names())} models. Refused: by both template and torch.",
            "",
            "| model | setting | holds for | equal | refused |",
            "| --- | --- | --- | --- | --- |",
        ]
        OUT.write_text("\n".join([*head, *lines, ""]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
