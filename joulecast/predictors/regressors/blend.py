"""A weighted mean of trees and a Gaussian process, with more weight on the process near measured operations.

Near measured operations the process has smaller errors. Far from them it predicts the mean, while trees still follow
the sizes. Closeness is the correlation with the nearest measured point; its square is the share of the variance that
this point explains. The weight of the process falls much faster with distance than this share, for two reasons. A few
hundred measurements leave its length scales uncertain, and trees are nearly as good where the process is right, and far
better where it is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, damaged_entry
from ...operations.operation import Operation
from ..contract import Files, Regressor
from ..formats.numbers import number
from ..predictor import INPUT_NAMES
from ..recipes import BlendRecipe
from .fitted_trees import fit_forest
from .gaussian import GaussianProcess, fit_gaussian
from .trees import stored_trees

_STEEPEST = 1000  # Largest falloff that a stored file may have.

FALLOFF = 4.0
"""The weight of the process is proportional to this power of closeness. The powers 4, 8 and 16 have about the same
errors, and this is the least of them. On the A30, with each family of networks left out, and with three random samples
of measurements for the length scales, the mean error on networks is 8.2 % in inference and 7.5 % in training (with a
power of 2: 9.8 and 7.8 %). On unseen operations in ten folds it is 7.9 and 5.5 % (with a power of 2: 8.1 and 5.5 %)."""


@dataclass(frozen=True)
class BlendRegressor:
    """The mean of trees and a process, weighted by closeness.

    Args:
        share: Weight of the process at a measured operation, above 0, at most 1; it falls to 0 far from all of them.
        falloff: Power of closeness that the weight is proportional to.
    """

    trees: Regressor
    process: GaussianProcess
    share: float
    falloff: float = FALLOFF

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """One value per row of inputs."""
        by_trees = self.trees(inputs)
        by_process, closeness = self.process(inputs)
        weight = self.share * closeness**self.falloff
        mixed: FloatArray = by_trees + weight * (by_process - by_trees)
        return mixed

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`: the trees, the process, and how they are mixed.

        Raises MissingDependencyError: the converter of trees is not installed.
        """
        mixing = json.dumps({"falloff": self.falloff, "share": self.share}).encode()
        return {
            **self.trees.to_files(name),
            _process_file(name): self.process.to_bytes(),
            _mixing_file(name): mixing,
        }

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {"process": self.process}


def fit_blend(
    operations: Sequence[Operation],
    inputs: NDArray[np.float32],
    targets: FloatArray,
    recipe: BlendRecipe,
    quantity: str,
) -> Regressor:
    """See `OneGpuForm.fit`; the process has another share in time than in power, and is left out where it has none.

    Raises MissingDependencyError: scikit-learn is not installed.
    """
    trees = fit_forest(operations, inputs, targets, recipe, quantity)
    share = recipe.time_share if quantity == "time" else recipe.power_share
    return BlendRegressor(trees, fit_gaussian(inputs, targets, recipe.seed), share) if share else trees


def stored_blend(files: Files, name: str) -> Regressor:
    """What `BlendRegressor.to_files` wrote, or a forest where the process had no share.

    Raises ZooError: something is missing or damaged, or has another number of inputs.
    """
    trees = stored_trees(files, name)
    if _mixing_file(name) not in files:
        return trees
    try:
        mixing = json.loads(files[_mixing_file(name)])
        share, falloff = number(mixing["share"]), number(mixing["falloff"])
    except (ValueError, KeyError, TypeError) as error:
        raise _refused("its share or falloff cannot be read", str(error)[:100], "two numbers") from error
    for what, value, most in (("share of its Gaussian process", share, 1), ("falloff", falloff, _STEEPEST)):
        if not 0 < value <= most:
            raise _refused(f"the {what} is out of range", value, f"above 0, at most {most}")
    if _process_file(name) not in files:
        raise _refused("the file of its Gaussian process is missing", None, _process_file(name))
    process = GaussianProcess.from_bytes(files[_process_file(name)])
    if process.columns != len(INPUT_NAMES):
        raise _refused(
            "its Gaussian process has another number of inputs than there are features",
            process.columns,
            len(INPUT_NAMES),
        )
    return BlendRegressor(trees, process, share, falloff)


def _refused(reason: str, given: object, allowed: object) -> ZooError:
    return damaged_entry(f"a stored blend is damaged: {reason}", given, allowed)


def _process_file(name: str) -> str:
    return f"{name}-process.safetensors"


def _mixing_file(name: str) -> str:
    return f"{name}-mixing.json"
