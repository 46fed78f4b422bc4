"""Lists the operations that should be measured first on a GPU, and predicts them, before there are measurements.

What is listed is what `joulecast calibrate` would measure, only more of it (joulecast/queries/worth_measuring.py).
Writes one list for inference and one for training, which campaigns can use as networks, and the predictions, with which
--measured compares the measurements of these campaigns afterwards.

    python benchmarks/least_sure.py "H100 SXM" --count 1500 --out build/gpu-first
    python benchmarks/least_sure.py "H100 SXM" --measured OUT/times --measured OUT/training
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import joulecast
from joulecast.datasets import Dataset, load
from joulecast.hardware import find_gpu
from joulecast.operations.operation import MODES, Operation
from joulecast.queries.worth_measuring import worth_measuring
from joulecast.zoo import find_predictor


def predicted(out: Path) -> dict[Operation, Mapping[str, float]]:
    """What was predicted of each operation, from the files that were written before it was measured."""
    rows = [row for mode in MODES for row in json.loads((out / f"{mode}-predicted.json").read_text(encoding="utf-8"))]
    fields = ("kind", "input_shapes", "attributes", "precision", "mode")
    return {Operation.from_dict({name: row[name] for name in fields}): row for row in rows}


def compared(before: Mapping[Operation, Mapping[str, float]], dataset: Dataset) -> Iterator[str]:
    """Errors of device time by family and mode, without those of operations that were not predicted."""
    errors = defaultdict(list)
    for each in dataset.measurements:
        if each.usable and each.operation in before:
            seconds, expected = each.device_time_s, before[each.operation]["device_time_s"]
            ratio = expected / seconds if seconds else before[each.operation]["time_s"] / each.time_s
            errors["all", each.operation.mode].append(ratio - 1)
            errors[each.operation.row.family, each.operation.mode].append(ratio - 1)
    for (family, mode), found in errors.items():
        size = np.abs(found)
        yield (
            f"| {family} | {mode} | {len(found)} | {100 * size.mean():.1f} % | {100 * np.median(size):.1f} % | "
            f"{100 * np.median(found):+.1f} % |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", help="name of a GPU of the catalogue")
    parser.add_argument("--count", type=int, default=1500, help="operations in all, two thirds of them in inference")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-first"), help="folder for the lists")
    parser.add_argument("--measured", type=Path, action="append", help="dataset to compare with what stands in --out")
    arguments = parser.parse_args()
    if arguments.measured:
        print(
            "| family | mode | operations | mean error | median | median with its sign |\n| --- " + "| --- " * 5 + "|"
        )
        for folder in arguments.measured:
            print("\n".join(compared(predicted(arguments.out), load(folder))))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    board = find_gpu(arguments.gpu)
    predictors = {mode: find_predictor(board, mode).operations for mode in MODES}
    for mode, chosen in worth_measuring(predictors, arguments.count).items():
        joulecast.Network.of([(operation, 1) for operation in chosen]).save(arguments.out / f"{mode}.json")
        rows = predictors[mode].predict(chosen).to_dict()["operations"]
        (arguments.out / f"{mode}-predicted.json").write_text(json.dumps(rows, indent=0), encoding="utf-8")
        kinds = len({operation.kind for operation in chosen})
        total_s = sum(row["time_s"] for row in rows)
        print(f"{mode}: {len(chosen)} operations, {kinds} kinds, {total_s:.2f} s for one run of each")


if __name__ == "__main__":
    main()
