"""Lists the operations that should be measured first on a GPU, and predicts them, before there are measurements.

What is listed is what `joulecast calibrate` would measure, only more of it (joulecast/queries/worth_measuring.py).
Writes one list for inference and one for training, which campaigns can use as networks, and the predictions with which
the measurements will be compared.

    python benchmarks/least_sure.py "H100 SXM" --count 1500 --out build/gpu-first
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import joulecast
from joulecast.hardware import find_gpu
from joulecast.operations.operation import MODES
from joulecast.queries.worth_measuring import worth_measuring
from joulecast.zoo import find_predictor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", help="name of a GPU of the catalogue")
    parser.add_argument("--count", type=int, default=1500, help="operations in all, two thirds of them in inference")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-first"), help="folder for the lists")
    arguments = parser.parse_args()
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
