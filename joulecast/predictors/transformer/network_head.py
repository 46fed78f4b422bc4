"""Predicts how a network differs from the sum of its operations, from the vector that a transformer makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from ...arrays import FloatArray
from ..formats.numbers import number_array

_LEAST_SPREAD = 1e-3

SYNTHETIC_LENGTH = 12
"""Number of operations in a synthetic network, which is put together from measured operations."""


class Example(NamedTuple):
    """A network to learn from.

    Args:
        vector: The vector that a transformer makes of the network, shape (numbers,).
        log_time, log_energy: Logarithms of measured time and energy over the values predicted from its operations.
        device: How much its time depends on the device: 1 where only the device counts, 0 where only the host does.
    """

    vector: FloatArray
    log_time: float
    log_energy: float
    device: float
    weight: float


@dataclass(frozen=True)
class NetworkHead:
    """Predicts two factors from the vector of a network: for the device time and dynamic energy of its operations.

    Args:
        weights: Weights of a linear function that gives the logarithms of the factors, shape (2, numbers of a vector).
        bias: Bias of this function, shape (2,).
        lowest, highest: Range of the logarithms in training, each of shape (2,); predictions stay within it.
    """

    weights: FloatArray
    bias: FloatArray
    lowest: FloatArray
    highest: FloatArray

    def __call__(self, vector: FloatArray) -> tuple[float, float]:
        """Factors for device time and for dynamic energy."""
        time, energy = np.exp(np.clip(self.weights @ vector + self.bias, self.lowest, self.highest)).tolist()
        return time, energy

    @classmethod
    def fit(cls, examples: Sequence[Example], shrinkage: float) -> Self:
        """Fit by ridge regression, with the numbers of the vectors in units of their standard deviation.

        The shrinkage is the penalty on the squared weights; the weights of the examples sum up to one.
        """
        vectors, log_time, log_energy, device, weight = (np.array(column) for column in zip(*examples, strict=True))
        weight = weight / weight.sum()
        centre = weight @ vectors
        spread = np.sqrt(weight @ (vectors - centre) ** 2) + _LEAST_SPREAD
        inputs = np.column_stack([(vectors - centre) / spread, np.ones(len(vectors))])
        found = np.array(
            [
                _ridge(inputs * device[:, None], log_time, weight, shrinkage),
                _ridge(inputs, log_energy, weight, shrinkage),
            ]
        )
        logs = found @ inputs.T
        weights = found[:, :-1] / spread
        return cls(weights, found[:, -1] - weights @ centre, logs.min(1), logs.max(1))

    def to_dict(self) -> dict[str, Any]:
        """The head as a dictionary of lists."""
        return {name: getattr(self, name).tolist() for name in ("weights", "bias", "lowest", "highest")}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises KeyError, TypeError, ValueError: the content is not what `to_dict` writes.
        """
        weights = number_array(value["weights"], 2)
        bias, lowest, highest = (number_array(value[name]) for name in ("bias", "lowest", "highest"))
        if len(weights) != 2 or any(array.shape != (2,) for array in (bias, lowest, highest)):
            raise ValueError(
                f"the head for networks has arrays of shapes {weights.shape}, {bias.shape}, {lowest.shape} and "
                f"{highest.shape} instead of (2, numbers) and three times (2,)"
            )
        return cls(weights, bias, lowest, highest)


def _ridge(inputs: FloatArray, target: FloatArray, weight: FloatArray, shrinkage: float) -> FloatArray:
    weighted = inputs * weight[:, None]
    moments = inputs.T @ weighted + shrinkage * np.eye(inputs.shape[1])
    return np.asarray(np.linalg.solve(moments, weighted.T @ target), dtype=np.float64)
