"""A recipe in one file, as CONTRIBUTING describes it: settings, fit and storage of ridge regression.

Nothing that ships uses it. tests/test_promises.py puts it into a copy of the package, beside one row of the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError
from ...operations.operation import Operation
from ..contract import INPUT_NAMES, Files
from ..formats.numbers import arrays_from_bytes, arrays_to_bytes
from ..recipes import Recipe, setting


@dataclass(frozen=True)
class RidgeRecipe(Recipe):
    """Settings of ridge regression.

    Args:
        penalty: Weight of the squared coefficients in the loss, 0 or more.
    """

    penalty: float = setting(1.0)


@dataclass(frozen=True)
class Ridge:
    """A linear function of the inputs, held to the range of what was measured.

    Args:
        coefficients: One for each input and one for the constant, shape (len(INPUT_NAMES) + 1,).
        limits: Lowest and highest target that was measured, shape (2,): a straight line leads anywhere, also to powers
            below zero.
    """

    coefficients: FloatArray
    limits: FloatArray

    def __call__(self, inputs: NDArray[np.float32], /) -> FloatArray:
        """One value per row of inputs."""
        values = inputs.astype(np.float64) @ self.coefficients[:-1] + self.coefficients[-1]
        return np.clip(values, *self.limits)

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`."""
        return {f"{name}.safetensors": arrays_to_bytes({"coefficients": self.coefficients, "limits": self.limits})}


def fit_ridge(
    operations: Sequence[Operation],
    inputs: NDArray[np.float32],
    targets: FloatArray,
    recipe: RidgeRecipe,
    quantity: str,
) -> Ridge:
    """See `OneGpuForm.fit`."""
    rows = inputs.astype(np.float64)
    mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    standard = (rows - mean) / scale
    normal = standard.T @ standard + recipe.penalty * len(rows) * np.eye(len(mean))
    slopes = np.linalg.solve(normal, standard.T @ (targets - targets.mean())) / scale
    limits = np.array([targets.min(), targets.max()])
    return Ridge(np.append(slopes, targets.mean() - slopes @ mean), limits)


def stored_ridge(files: Files, name: str) -> Ridge:
    """What `Ridge.to_files` wrote.

    Raises:
        ZooError: The file is missing, damaged, or of other inputs.
    """
    arrays, _ = arrays_from_bytes(files[f"{name}.safetensors"])
    coefficients = arrays["coefficients"]
    if coefficients.shape != (len(INPUT_NAMES) + 1,):
        raise ZooError(
            "a stored ridge regression has another number of coefficients than there are features",
            given=str(coefficients.shape),
        )
    return Ridge(coefficients, arrays["limits"])
