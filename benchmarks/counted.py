"""How far physics alone is from measured operations in fp32 in inference, with nothing learned, by kind and chip.

    python benchmarks/counted.py build/datasets/v100-pcie-32gb build/datasets/a30 ...

The time of an operation is what is counted of its kernel (`counted_s`). Operations whose kernels hide behind their
launch have no time; of single products a second table says how many would take longer than their whole call. A third
compares long products with what the predictor that ships says of them in a network of nothing else, where the clock law
alone applies the power cap.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from joulecast import Network, predict_many
from joulecast.datasets import Dataset, load
from joulecast.hardware import find_gpu
from joulecast.predictors.measured import device_rows
from joulecast.predictors.physics.fp32_kernels import counted_s

_LEAST = 10  # Operations of a kind on a chip below which its mean says little.
_MORE = 1.2
_LONG_S, _DRAWN, _CALLS = (
    5e-3,
    400,
    20,
)  # Long products, how many of a kind are drawn, and calls of each in its network.


def errors(dataset: Dataset) -> dict[str, tuple[int, float, float]]:
    """Kind -> number of operations, and mean and median of |counted / measured - 1|."""
    gpu = find_gpu(dataset.card.gpu)
    rows = [
        row for row in device_rows(dataset) if (row.operation.precision, row.operation.mode) == ("fp32", "inference")
    ]
    off = np.abs(counted_s([row.operation for row in rows], gpu) / [row.device_s for row in rows] - 1) if rows else ()
    of_kind = defaultdict(list)
    for row, error in zip(rows, off, strict=True):
        of_kind[row.operation.kind].append(error)
    return {
        kind: (len(each), float(np.mean(each)), float(np.median(each)))
        for kind, each in sorted(of_kind.items())
        if len(each) >= _LEAST
    }


def single_products(dataset: Dataset) -> tuple[int, int]:
    """Number of single products, and of those that are counted well over their whole call."""
    calls = {
        m.operation: m.time_s
        for m in dataset.measurements
        if m.usable and m.operation.kind == "matmul" and m.operation.product.batch == 1
    }
    counted = counted_s([*calls], find_gpu(dataset.card.gpu)) if calls else np.zeros(0)
    return len(calls), int((counted > _MORE * np.array([*calls.values()])).sum())


def in_networks(dataset: Dataset) -> dict[str, tuple[int, np.ndarray]]:
    """Kind -> number of long products, and median, 10th and 90th percentile of their time in networks over measured."""
    found = {}
    for kind in ("linear", "matmul"):
        rows = [row for row in device_rows(dataset) if row.operation.kind == kind and row.device_s > _LONG_S]
        if len(rows) < _LEAST:
            continue
        rows = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))[:_DRAWN]]
        predicted = predict_many([Network.of([(row.operation, _CALLS)]) for row in rows], dataset.card.gpu)
        ratio = predicted.time_s / _CALLS / [row.device_s for row in rows]
        found[kind] = len(rows), np.quantile(ratio, [0.5, 0.1, 0.9])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path)
    datasets = [load(folder) for folder in parser.parse_args().datasets]
    by_kind = defaultdict(list)
    print("| GPU | kind | operations | mean | median |\n| --- | --- | --- | --- | --- |")
    for dataset in datasets:
        for kind, (count, mean, median) in errors(dataset).items():
            by_kind[kind].append(mean)
            print(f"| {dataset.card.gpu} | {kind} | {count} | {mean:.1%} | {median:.1%} |")
    for kind, means in sorted(by_kind.items()):
        print(f"| mean of {len(means)} | {kind} |  | {np.mean(means):.1%} |  |")
    print(f"\n| GPU | single products | over {_MORE} times their call |\n| --- | --- | --- |")
    for dataset in datasets:
        count, longer = single_products(dataset)
        if count:
            print(f"| {dataset.card.gpu} | {count} | {longer} |")
    print(
        "\n| GPU | long products | number | in a network over measured: median, 10 to 90 % |\n| --- | --- | --- | --- |"
    )
    for dataset in datasets:
        for kind, (count, (median, low, high)) in in_networks(dataset).items():
            print(f"| {dataset.card.gpu} | {kind} | {count} | {median:.2f}, {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
