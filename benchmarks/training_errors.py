"""Prints the errors of training steps that joulecast/predictors/intervals/errors.toml holds.

    python benchmarks/training_errors.py ../shared/data/llmfoundry2024/training.csv

Steps in half precision that were held back by training.py, public.py and runs.py count: nothing was fitted to them.
Their networks are extracted, which takes some minutes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import public
import runs
import training

import joulecast

Error = tuple[str, str, float]
"""GPU, network, and log ratio of predicted to published time."""


def held_back(mpt: Path, networks: Path) -> Iterator[Error]:
    """The errors of all steps in half precision that were held back.

    Args:
        mpt: training.csv of llmfoundry2024.
        networks: Folder for extracted networks.
    """
    nvidia = [run for run in training.published() if not run.is_first and run.precision in ("amp", "fp16")]
    for outcome in training.outcomes(nvidia, networks / "training"):
        yield outcome.run.gpu, outcome.run.network, outcome.log_ratio
    for case in public.published():
        if case.mode == "training" and not case.is_first:
            network = public.as_published(case, networks / "public")
            seconds = joulecast.predict(network, gpu=case.gpu).time_s
            yield case.gpu, case.network, float(np.log(1e3 * seconds / case.step_ms))
    for row in runs.rows(mpt):
        if row.model not in runs.LOOKED_AT:
            yield row.gpu, row.model, float(np.log(row.predicted().whole.time_s / row.step_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mpt", type=Path, help="training.csv of llmfoundry2024")
    parser.add_argument("--networks", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    by_network = defaultdict(list)
    for gpu, network, error in held_back(arguments.mpt, arguments.networks):
        by_network[gpu, network].append(error)
    errors = sorted(float(np.sqrt(np.mean(np.square(each)))) for each in by_network.values())
    print(*(f"{error:.3f}" for error in errors), sep=", ")


if __name__ == "__main__":
    main()
