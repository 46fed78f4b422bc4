"""The least half widths of intervals for operations of which no dataset says anything.

Another kind stands in for a kind that was never measured. The errors that intervals come from were found on measured
kinds that stood in for one another, so they are too small for a kind that works in another way, such as `sort`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ...operations.operation import Operation

MEASURED_KINDS: frozenset[str] = frozenset(
    {
        # By themselves: the datasets that datasets/importers reads.
        *("adaptive_avg_pool2d", "add", "attention", "batch_norm", "conv2d", "div", "experts", "gelu", "layer_norm"),
        *("linear", "matmul", "max_pool2d", "mul", "pow", "relu", "sigmoid", "silu", "softmax", "stochastic_depth"),
        *("tanh", "all_gather", "all_reduce", "all_to_all", "reduce_scatter"),
        # As parts of the networks that were measured: torchvision's ten, BERT, GPT-2 and ViT.
        *("cat", "clamp", "copy", "dropout", "embedding", "exp", "gather", "gradient_accumulation", "norm"),
        *("save_input", "sub"),
    }
)
"""Kinds that a dataset measured, alone or within a network."""

_LEVEL = 0.9
# Assumed, as there is nothing to learn it from: nine of ten such operations take between half and twice what is
# predicted. Power is known better, because cap and idle board bound it.
_LEAST_FACTORS: Mapping[str, float] = {"time": 2.0, "power": 1.4, "energy": 2.0}


def never_measured(operations: Sequence[Operation], also_measured: Collection[str] = ()) -> NDArray[np.bool_]:
    """Mask of the operations whose kind no dataset has measured, shape (operations,).

    Args:
        operations: The operations.
        also_measured: Kinds that the predictor itself was trained on.
    """
    known = MEASURED_KINDS.union(also_measured)
    return np.array([o.kind not in known and not o.is_identity for o in operations], dtype=bool)


def least_half_width(quantity: str, level: float) -> float:
    """The least half width of the logarithm of time, power or energy, for a level between 0 and 1.

    Log errors are taken to be normal, which says how the factors above change with the level.
    """
    quantiles = [NormalDist().inv_cdf((1 + each) / 2) for each in (level, _LEVEL)]
    return math.log(_LEAST_FACTORS[quantity]) * quantiles[0] / quantiles[1]
