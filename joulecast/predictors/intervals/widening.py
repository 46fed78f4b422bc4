"""What makes intervals wider where nothing was measured: another clock, and kinds that no dataset has.

Clocks: networks on the A100 were measured at several clocks (energaizer2026), and predicted without measurements of
that chip. For 92 pairs of a clock and the network's highest clock, the difference of their log errors was divided by
the octaves between the two clocks. The lists are the quantiles of the results, in steps of 1/40; `python
benchmarks/clock_errors.py` makes them. No dataset has another GPU at several clocks, so they are used for all GPUs.

Kinds: one that was measured in no dataset is modelled by another one. The errors behind intervals come from measured
kinds that were modelled by one another, so they are too small for a kind that works in a different way, such as `sort`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation
from .conformal import conformal_error

BASIS = "the A100's networks at other clocks than their highest"

_QUANTILES: Mapping[str, str] = {
    "time": (
        "0.016 0.025 0.032 0.035 0.036 0.04 0.041 0.047 0.052 0.054 0.067 0.077 0.091 0.097 0.114 0.118 0.131 "
        "0.137 0.141 0.146 0.153 0.158 0.163 0.166 0.171 0.189 0.196 0.207 0.224 0.233 0.238 0.244 0.255 "
        "0.271 0.283 0.295 0.321 0.333 0.404"
    ),
    "power": (
        "0.045 0.055 0.087 0.092 0.107 0.113 0.123 0.127 0.135 0.151 0.16 0.165 0.17 0.201 0.206 0.213 0.218 "
        "0.221 0.257 0.26 0.268 0.303 0.308 0.318 0.322 0.336 0.378 0.38 0.384 0.41 0.439 0.455 0.466 0.488 "
        "0.541 0.575 0.634 0.71 0.858"
    ),
    "energy": (
        "0.005 0.009 0.019 0.023 0.025 0.026 0.033 0.039 0.042 0.05 0.055 0.057 0.058 0.065 0.074 0.079 0.088 "
        "0.102 0.116 0.123 0.125 0.132 0.139 0.151 0.167 0.179 0.188 0.201 0.22 0.258 0.263 0.266 0.301 0.321 "
        "0.341 0.377 0.411 0.431 0.466"
    ),
    "edp": (
        "0.01 0.012 0.016 0.03 0.036 0.037 0.043 0.053 0.059 0.063 0.071 0.074 0.077 0.089 0.091 0.101 0.104 "
        "0.107 0.12 0.125 0.132 0.137 0.142 0.154 0.157 0.16 0.166 0.168 0.173 0.188 0.202 0.208 0.215 0.222 "
        "0.224 0.249 0.258 0.304 0.497"
    ),
}

CLOCK_ERRORS: Mapping[str, FloatArray] = {
    quantity: np.array(values.split(), dtype=float) for quantity, values in _QUANTILES.items()
}
"""Quantity -> sorted absolute log errors per octave."""


def octaves(held_mhz: FloatArray | float, measured_mhz: float) -> FloatArray:
    """Distance of clocks from the measured one in octaves, upwards or downwards."""
    found: FloatArray = np.abs(np.log2(np.asarray(held_mhz, dtype=float) / measured_mhz))
    return found


def clock_error(quantity: str, level: float, octaves_away: FloatArray) -> FloatArray:
    """Half width that is added for clocks that were not measured; 0 at the measured clock.

    Raises InputError: the level is higher than the errors support.
    """
    if not np.any(octaves_away):
        return np.zeros_like(octaves_away)
    return conformal_error(CLOCK_ERRORS[quantity], level, BASIS) * octaves_away


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

    `also_measured` has the kinds that the predictor itself was trained on.
    """
    known = MEASURED_KINDS.union(also_measured)
    return np.array(
        [(each.kind not in known or each.precision == "fp64") and not each.is_identity for each in operations],
        dtype=bool,
    )


def least_half_width(quantity: str, level: float) -> float:
    """The least half width of the logarithm of time, power, energy or EDP, for a level between 0 and 1.

    Log errors are assumed to be normally distributed, from which the factors at other levels follow.
    """
    from statistics import NormalDist  # imported here, because it takes as long as all of this package's intervals

    quantiles = [NormalDist().inv_cdf((1 + each) / 2) for each in (level, LEAST_LEVEL)]
    return math.log(_LEAST_FACTORS[quantity]) * quantiles[0] / quantiles[1]
