"""Split conformal prediction (Lei et al., JASA 2018), the range of power that no interval leaves, and what widens them.

Take the k-th smallest of n absolute errors as the half width, with k = ceil((n + 1) x level). Then a share `level` of
new cases like those lies within.

What makes intervals wider where nothing was measured: another clock, kinds that no dataset has, training in half.

Clocks and training steps in half precision: the errors are in errors.toml, which says where they come from.

Kinds: one that was measured in no dataset is modelled by another one. The errors behind intervals come from measured
kinds that were modelled by one another, so they are too small for a kind that works in a different way, such as `sort`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import InputError
from ...hardware import GPU
from ...operations.operation import Operation

_ROUNDING = 1e-6  # Tolerance for rounding errors in sums of weights.


def require_level(level: float) -> None:
    """Require that the level of an interval, the share of cases that lie within, is between 0 and 1.

    Raises InputError: it is not.
    """
    if not 0 < level < 1:
        raise InputError("the level of an interval lies between 0 and 1", given=level, allowed="such as 0.9")


def conformal_rank(level: float, count: int) -> int:
    """Rank of the error, of `count` sorted ones, that covers a share `level` of new cases; above `count` if none does.

    Raises InputError: the level is not between 0 and 1.
    """
    require_level(level)
    return math.ceil((count + 1) * level - 1e-9)


def conformal_error(errors: Sequence[float] | FloatArray, level: float, of_what: str) -> float:
    """The half width that covers a share `level`, out of sorted absolute errors.

    Raises InputError: the level is not between 0 and 1, or too high for so few errors.
    """
    rank = conformal_rank(level, len(errors))
    if rank > len(errors):
        raise InputError(
            f"{len(errors)} {of_what} cannot support such an interval",
            given=level,
            allowed=f"up to {len(errors) / (len(errors) + 1):.3f}",
        )
    return float(errors[rank - 1])


def thinned(errors: FloatArray, most: int, weights: FloatArray | None = None) -> FloatArray:
    """Sorted errors; at most `most` of them, evenly spaced by rank, so that their conformal intervals stay the same.

    NaN stands for unknown errors. Without weights each error has a weight of 1. The result has at most as many errors
    as the weights sum up to.
    """
    known = ~np.isnan(errors)
    order = np.argsort(errors[known], kind="stable")
    reached = np.cumsum(np.ones(len(order)) if weights is None else weights[known][order])
    count = int(reached[-1] + _ROUNDING)
    number = min(most, count)
    ranks = (count + 1) * np.arange(1, number + 1) / (number + 1)
    places = np.searchsorted(reached, ranks - _ROUNDING)
    found: FloatArray = errors[known][order[np.minimum(places, len(order) - 1)]]
    return found


def power_range_w(gpu: GPU, power_limit_w: float) -> tuple[float, float]:
    """Least and most watts that a board can draw under a cap."""
    idle_w = gpu.idle_power_w
    if idle_w is None:
        idle_w = 0.0 if gpu.idle_curve is None else float(gpu.idle_curve.at(float(gpu.min_clock_mhz)))
    return min(idle_w, power_limit_w), power_limit_w


def within_range(low: Any, value: Any, high: Any, power_range_w: tuple[float, float]) -> tuple[Any, Any]:
    """An interval of power, cut off at what the board can draw."""
    least, most = power_range_w
    return np.minimum(np.maximum(low, least), value), np.maximum(np.minimum(high, most), value)


BASIS = "the A100's networks at other clocks than their highest"
_ERRORS = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
CLOCK_ERRORS: Mapping[str, FloatArray] = {name: np.array(values) for name, values in _ERRORS["clocks"].items()}
"""Quantity -> sorted absolute log errors per octave."""

STEP_ERRORS: Mapping[str, Any] = _ERRORS["training"]
"""Floor and correlation of the difficulty of training steps in half precision, and sorted errors in units of it."""


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
