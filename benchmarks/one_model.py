"""Errors of the one model of an operation on sizes and on generations of GPUs that were left out.

    joulecast datasets import SOURCE ../shared/data/SOURCE --out build/one/SOURCE    (for each source of device times)
    python benchmarks/one_model.py build/one [--rows 4000] [--jobs 2] [--out benchmarks/MODEL.md]

Sizes: an eighth of the sizes of layers is left out on all GPUs, in all modes and precisions. A checksum decides which.
Generations: all GPUs of a compute capability are left out, one after the other, also of the fit of the constants of
physics and of how far trees are trusted; the same eighth of their sizes is predicted. Only times over ten microseconds
count: shorter ones are those of launches.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from joulecast.datasets.store import load
from joulecast.operations.operation import Operation
from joulecast.predictors.kernels.basis import generation_of
from joulecast.predictors.measured.rows import DeviceRow, device_rows
from joulecast.predictors.model.fit import fit_one_model, thinned
from joulecast.predictors.model.learned import OneModel
from joulecast.predictors.recipes import OneModelRecipe

SHORTEST_S = 1e-5
EIGHTHS = 8


class Case(NamedTuple):
    """An operation that was left out: what it is, its measured seconds, and what the model says, part by part."""

    split: str
    kind: str
    precision: str
    gpu: str
    measured_s: float
    predicted_s: float
    physics_s: float


def size_of(operation: Operation) -> object:
    """What is left out together: the sizes of a layer, for any batch."""
    o = operation
    names = sorted(set(o.attributes) - {"implementation", "cache_precision", "distribution", "direction", "window"})
    attributes = tuple((name, repr(o.attributes[name])) for name in names)
    shapes = {
        "linear": o.input_shapes[0][-1:],
        "experts": o.input_shapes[0][-1:],
        "attention": tuple((shape[-3:-2], shape[-1]) for shape in o.input_shapes),
    }
    return (
        o.kind,
        shapes.get(o.kind, o.input_shapes[0][1:] if o.kind.startswith("conv") else o.input_shapes),
        attributes,
    )


def is_held(operation: Operation) -> bool:
    return zlib.crc32(repr(size_of(operation)).encode()) % EIGHTHS == 0


def judged(split: str, model: OneModel, rows: Sequence[DeviceRow]) -> Iterator[Case]:
    by_gpu = defaultdict(list)
    for row in rows:
        by_gpu[row.gpu].append(row)
    for gpu, mine in by_gpu.items():
        terms = model.terms([row.operation for row in mine], gpu)
        for row, predicted_s, physics_s in zip(mine, terms.device_s, terms.physics_s, strict=True):
            o = row.operation
            decodes = o.kind == "attention" and o.input_shapes[0][-2] == 1
            kind = "decoding" if decodes else "point-wise" if o.row.family == "elementwise" else o.kind
            kind = kind if o.mode == "inference" else f"{kind}, training"
            yield Case(split, kind, o.precision, gpu.name, row.device_s, float(predicted_s), float(physics_s))


def table(cases: Sequence[Case], split: str) -> Iterator[str]:
    yield "| kind | precision | GPU | operations | mean | median | 90 % within | bias | physics alone, mean |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    groups = defaultdict(list)
    for case in cases:
        if case.split == split and case.measured_s > SHORTEST_S:
            groups[case.kind, case.precision, case.gpu].append(case)
    for (kind, precision, gpu), mine in sorted(groups.items()):
        measured = np.array([case.measured_s for case in mine])
        errors = np.array([case.predicted_s for case in mine]) / measured - 1
        physics = np.abs(np.array([case.physics_s for case in mine]) / measured - 1)
        size = np.abs(errors)
        numbers = (size.mean(), np.median(size), np.quantile(size, 0.9), np.median(errors), physics.mean())
        row = (kind, precision, gpu, str(len(mine)), *(f"{100 * number:.1f} %" for number in numbers))
        yield f"| {' | '.join(row)} |"


def cases_of(split: str, rows: Sequence[DeviceRow], recipe: OneModelRecipe) -> list[Case]:
    """Fit without what a split leaves out, and predict that: sizes, or the sizes of a generation without all of it."""
    held = [is_held(row.operation) for row in rows]
    if split == "sizes":
        seen, unseen = ([row for row, out in zip(rows, held, strict=True) if out is side] for side in (False, True))
        return list(judged("sizes", fit_one_model([], seen, recipe), unseen))
    mine = [row for row, out in zip(rows, held, strict=True) if generation_of(row.gpu) == split and out]
    others = [row for row in rows if generation_of(row.gpu) != split]
    return list(judged("generations", fit_one_model([], others, recipe), mine))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=4000, help="most measurements of a GPU, kind, precision, program")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--splits", nargs="*", help="sizes, or generations to leave out; without it, all of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    recipe = replace(OneModelRecipe(), most_rows=asked.rows)
    rows = [row for card in sorted(asked.folder.rglob("card.json")) for row in device_rows(load(card.parent))]
    rows = [row for _, some in thinned(rows, recipe) for row in some]
    splits = asked.splits or ["sizes", *sorted({generation_of(row.gpu) for row in rows})]
    found = Parallel(n_jobs=asked.jobs)(delayed(cases_of)(split, rows, recipe) for split in splits)
    cases = [case for some in found for case in some]
    told = "\n".join((__doc__ or "").splitlines()[5:])
    command = f"python benchmarks/one_model.py {' '.join(sys.argv[1:])}"
    lines = ["# The one model of an operation", "", told, "", f"Made by `{command}`. Bias is the median error."]
    for split in ("sizes", "generations"):
        lines += ["", f"## {split.capitalize()} left out", "", *table(cases, split)]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.out:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
