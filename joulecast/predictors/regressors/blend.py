"""Trees and a Gaussian process together: each where it is better.

Near what was measured the process is closer to the truth; far away it knows nothing but the mean, while trees still
know the order of things. The weight of the process is the share of the variance that its nearest point explains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..contract import Regressor
from .gaussian import GaussianProcess


@dataclass(frozen=True)
class BlendRegressor:
    """The mean of trees and a process, weighted by closeness.

    Args:
        trees: Any regressor on the same inputs.
        process: Fitted on the same measurements.
        share: Weight of the process where it has measured the very operation; less elsewhere, 0 far away.
    """

    trees: Regressor
    process: GaussianProcess
    share: float

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """One value per row of inputs."""
        by_trees = self.trees(inputs)
        by_process, closeness = self.process(inputs)
        weight = self.share * closeness**2
        mixed: FloatArray = by_trees + weight * (by_process - by_trees)
        return mixed
