"""Prints the errors of training steps that joulecast/predictors/intervals/errors.toml holds, and what they cover.

    python benchmarks/training_errors.py ../shared/data/llmfoundry2024/training.csv

Errors are those of steps in half precision that training.py, public.py and runs.py look at; what intervals cover is
counted with those held back. Their networks are extracted, which takes some minutes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import public
import runs
import training

import joulecast
from joulecast import Prediction
from joulecast.hardware import find_gpu
from joulecast.predictors.evaluation.calibrating import fitted_difficulty
from joulecast.predictors.intervals.conformal import conformal_error
from joulecast.predictors.intervals.network_calibration import variances
from joulecast.zoo import find_predictor


class Step(NamedTuple):
    """A published step with its prediction.

    Args:
        source, network: Who published it; the name of the network.
        is_first: Whether it was looked at.
        predicted_s, published_s: Seconds of the whole step.
        prediction: Of the part of the step that an interval is around.
    """

    source: str
    network: str
    is_first: bool
    predicted_s: float
    published_s: float
    prediction: Prediction

    @property
    def error(self) -> float:
        """Absolute log error."""
        return abs(float(np.log(self.predicted_s / self.published_s)))

    @property
    def variances(self) -> np.ndarray:
        """The variance of its error by its operations: if these are wrong together, and if independently."""
        known = [cost for cost in self.prediction.operations if cost.device_time_s]
        operations = tuple(cost.operation for cost in known)
        seconds = np.array([cost.device_time_s for cost in known])
        spread = find_predictor(find_gpu(self.prediction.gpu), "training").operations.predict(operations).spread
        return variances(seconds / seconds.sum(), spread.sigmas(operations)["time"])


def steps(mpt: Path, networks: Path) -> Iterator[Step]:
    """All published steps in half precision; `mpt` is training.csv of llmfoundry2024."""
    for run in training.published():
        if run.precision in ("amp", "fp16"):
            found, optimizer_s = training.predicted(run, networks / "training")
            yield Step("NVIDIA", run.network, run.is_first, found.time_s + optimizer_s, run.step_ms / 1e3, found)
    for case in public.published():
        if case.mode == "training":
            found = joulecast.predict(public.as_published(case, networks / "public"), gpu=case.gpu)
            yield Step("timm", case.network, case.is_first, found.time_s, case.step_ms / 1e3, found)
    for row in runs.rows(mpt):
        step = row.predicted()
        yield Step("MPT", row.model, row.model in runs.LOOKED_AT, step.whole.time_s, row.step_s, step.micro)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mpt", type=Path, help="training.csv of llmfoundry2024")
    parser.add_argument("--networks", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    found = [*steps(arguments.mpt, arguments.networks)]
    sizes, squares = np.array([each.error for each in found]), np.array([each.variances for each in found])
    places = defaultdict(list)
    for place, each in enumerate(found):
        if each.is_first:
            places[each.prediction.gpu, each.network].append(place)
    first = [place for some in places.values() for place in some]
    # The steps of a network on a GPU count together as much as the square root of their number.
    weights = np.array([len(some) ** -0.5 for some in places.values() for _ in some])
    difficulty = fitted_difficulty(sizes[first], squares[first], weights)
    scores = sizes / difficulty.of(squares)
    errors = sorted(float(np.sqrt(np.mean(scores[some] ** 2))) for some in places.values())
    print(difficulty, *(f"{error:.3f}" for error in errors), sep=", ")
    widths = difficulty.of(squares)
    for level in (0.5, 0.8, 0.9, 0.95):
        most = conformal_error(errors, level, "networks")
        for half, source in product((True, False), ("NVIDIA", "timm", "MPT", "")):
            some = [i for i, each in enumerate(found) if each.is_first is half and each.source.startswith(source)]
            what = f"{level:g}, {'looked at' if half else 'held back'}, {source or 'all'}, {len(some)}"
            median = 100 * np.expm1(most * np.median(widths[some]))
            print(
                f"{what}: {100 * np.mean(scores[some] <= most):.0f} % within, half width {median:.0f} % in the median"
            )


if __name__ == "__main__":
    main()
