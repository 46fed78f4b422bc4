"""How far predictions for an MI300X are from AITER's kernels of the sizes that are held back (aiter2026).

    python benchmarks/aiter.py ../shared/data/aiter2026

The zoo's model of kernels learned from the other half of the sizes, which are on the other fields of a checkerboard
(joulecast/datasets/importers/aiter2026.py). The model's card says how far off it is where the whole board is left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from joulecast.datasets import Dataset
from joulecast.datasets.importers.aiter2026 import import_aiter2026
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.model.learned import OneModel
from joulecast.predictors.model.parts import parts_of
from joulecast.zoo.catalogue import find_kernels


def errors(dataset: Dataset, kernels: OneModel) -> dict[str, tuple[int, float, float, float]]:
    """Part -> number of kernels; mean, median and bias of predicted over measured time less 1."""
    operations = OperationList(m.operation for m in dataset.measurements)
    predicted_s = kernels.device_s(operations, find_gpu(dataset.card.gpu))
    over = predicted_s / np.array([m.time_s for m in dataset.measurements]) - 1
    names = parts_of(operations).names
    return {
        name: (len(mine), float(np.abs(mine).mean()), float(np.median(np.abs(mine))), float(mine.mean()))
        for name in sorted(set(names.tolist()))
        for mine in [over[names == name]]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with gemm.parquet and experts.parquet")
    kernels = find_kernels()
    for dataset in import_aiter2026(parser.parse_args().folder, held_back=True):
        for part, (count, *found) in errors(dataset, kernels).items():
            mean, median, bias = (f"{100 * each:.1f} %" for each in found)
            print(f"{dataset.card.gpu}, {part}: {count} kernels, mean {mean}, median {median}, bias {bias}")


if __name__ == "__main__":
    main()
