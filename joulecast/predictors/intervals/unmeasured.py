"""Least half widths of intervals for operations whose kind was measured in no dataset.

Such a kind is modelled by another one. The errors behind intervals come from measured kinds that were modelled by one
another, so they are too small for a kind that works in a different way, such as `sort`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...operations.operation import Operation

MEASURED_KINDS: frozenset[str] = frozenset(
    {
        # Kinds measured by themselves, in the datasets that datasets/importers reads.
        *("adaptive_avg_pool2d", "add", "attention", "batch_norm", "conv2d", "div", "experts", "gelu", "layer_norm"),
        *("linear", "matmul", "max_pool2d", "mul", "pow", "relu", "sigmoid", "silu", "softmax", "stochastic_depth"),
        *("tanh", "all_gather", "all_reduce", "all_to_all", "reduce_scatter"),
        # Kinds measured as parts of networks: ten of torchvision, BERT, GPT-2 and ViT.
        *("cat", "clamp", "copy", "dropout", "embedding", "exp", "gather", "gradient_accumulation", "norm"),
        *("save_input", "sub"),
    }
)
"""Kinds that a dataset measured, alone or within a network."""

LEAST_LEVEL = 0.9
"""The level that the least factors hold at."""
# An assumption, because there is no data: nine of ten such operations take between half and twice the predicted time.
# Power is known better, because the cap and the idle board bound it.
_LEAST_FACTORS: Mapping[str, float] = {"time": 2.0, "power": 1.4, "energy": 2.0, "edp": 4.0}


def never_measured(operations: Sequence[Operation], also_measured: Collection[str] = ()) -> NDArray[np.bool_]:
    """Mask of the operations whose kind, or precision, no dataset has measured, shape (operations,).

    Args:
        operations: The operations.
        also_measured: Kinds that the predictor itself was trained on.
    """
    known = MEASURED_KINDS.union(also_measured)
    return np.array([_is_new(operation, known) for operation in operations], dtype=bool)


def _is_new(operation: Operation, known: Collection[str]) -> bool:
    return (operation.kind not in known or operation.precision == "fp64") and not operation.is_identity


def least_half_width(quantity: str, level: float) -> float:
    """The least half width of the logarithm of time, power, energy or EDP, for a level between 0 and 1.

    Log errors are assumed to be normally distributed, from which the factors at other levels follow.
    """
    from statistics import NormalDist  # imported here, because it takes as long as all of this package's intervals

    quantiles = [NormalDist().inv_cdf((1 + each) / 2) for each in (level, LEAST_LEVEL)]
    return math.log(_LEAST_FACTORS[quantity]) * quantiles[0] / quantiles[1]
