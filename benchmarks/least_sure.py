"""Finds the operations with the widest intervals on a GPU, which should be measured first.

Predicts the operations of networks of many families, in all modes and precisions. They are grouped by kind, precision,
and short or long time. The list begins with the operation with the widest interval of each group, then the second of
each, and so on. It therefore prefers sizes that were not measured, and contains all kinds. Writes one list for
inference and one for training, which campaigns can use as networks, and the predictions, with which the measurements
will be compared.

    python benchmarks/least_sure.py "H100 SXM" --count 1500 --out build/gpu-first
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

import joulecast
from joulecast.errors import JoulecastError
from joulecast.operations.operation import MODES, Operation

IMAGES = ("resnet50", "convnext_tiny", "efficientnet_b0", "mobilenet_v3_large", "densenet121", "swin_t", "vit_b_16")
TEXTS = ("bert_base", "gpt2", "llama3_8b", "qwen2_0_5b", "t5_small", "distilbert")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
IMAGE_BATCHES, TEXT_SHAPES = (1, 8, 32, 128), ((1, 128), (8, 128), (4, 1024), (32, 512))
_LONG_S = 50e-6  # From here on power can be measured as well.
_LONGEST_S = 0.1  # An operation that takes longer is no use of a rented minute.


def candidates() -> dict[str, list[Operation]]:
    """Mode -> unique operations of all networks, identities left out."""
    found: dict[str, dict[Operation, None]] = {mode: {} for mode in MODES}
    jobs = [(name, (batch, 3, 224, 224)) for name in IMAGES for batch in IMAGE_BATCHES]
    jobs += [(name, shape) for name in TEXTS for shape in TEXT_SHAPES]
    for (name, shape), mode, precision in itertools.product(jobs, MODES, PRECISIONS):
        try:
            network = joulecast.extract(name, shape, mode=mode, precision=precision)
        except JoulecastError:
            continue  # such as a size that a model refuses
        found[mode] |= dict.fromkeys(entry.operation for entry in network if not entry.operation.is_identity)
    return {mode: list(operations) for mode, operations in found.items()}


def least_sure(operations: list[Operation], gpu: str, count: int) -> list[tuple[Operation, float, float]]:
    """Operations with predicted seconds and the width of their interval, high over low."""
    predictions = joulecast.predict_operations(operations, gpu)
    interval = predictions.interval()
    widths = np.full(len(operations), np.inf) if interval is None else interval.time_s[1] / interval.time_s[0]
    groups: dict[tuple[str, str, bool], list[tuple[Operation, float, float]]] = defaultdict(list)
    for operation, seconds, width in zip(operations, predictions.time_s.tolist(), widths.tolist(), strict=True):
        if 0 < seconds < _LONGEST_S:
            group = operation.kind, operation.precision, seconds > _LONG_S
            groups[group].append((operation, seconds, width if width == width else np.inf))
    for rows in groups.values():
        rows.sort(key=lambda row: -row[2])
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*groups.values()))
    return [row for row in in_turn if row is not None][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", help="name of a GPU of the catalogue")
    parser.add_argument("--count", type=int, default=1500, help="operations in all, two thirds of them in inference")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-first"), help="folder for the lists")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    shares = {"inference": 2 / 3, "training": 1 / 3}
    for mode, operations in candidates().items():
        chosen = least_sure(operations, arguments.gpu, round(shares[mode] * arguments.count))
        network = joulecast.Network.of([(operation, 1) for operation, _, _ in chosen])
        network.save(arguments.out / f"{mode}.json")
        rows = [{**operation.to_dict(), "time_s": seconds, "width": width} for operation, seconds, width in chosen]
        (arguments.out / f"{mode}-predicted.json").write_text(json.dumps(rows, indent=0), encoding="utf-8")
        kinds = len({operation.kind for operation, _, _ in chosen})
        total_s = sum(seconds for _, seconds, _ in chosen)
        print(
            f"{mode}: {len(chosen)} of {len(operations)} operations, {kinds} kinds, {total_s:.2f} s for one run of each"
        )


if __name__ == "__main__":
    main()
