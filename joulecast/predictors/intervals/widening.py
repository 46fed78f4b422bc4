"""What makes intervals wider where nothing was measured: another clock, kinds that no dataset has, training in half.

Clocks and training steps in half precision: the errors are in errors.toml, which says where they come from.

Kinds: one that was measured in no dataset is modelled by another one. The errors behind intervals come from measured
kinds that were modelled by one another, so they are too small for a kind that works in a different way, such as `sort`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.operation import Operation
from .conformal import conformal_error

BASIS = "the A100's networks at other clocks than their highest"
TRAINING_BASIS = "published training steps in half precision (time) and networks in inference (power)"

_ERRORS = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
CLOCK_ERRORS: Mapping[str, FloatArray] = {name: np.array(values) for name, values in _ERRORS["clocks"].items()}
"""Quantity -> sorted absolute log errors per octave."""

STEP_ERRORS: FloatArray = np.array(_ERRORS["training"]["time"])
"""Sorted absolute log errors of the time of training steps in half precision."""


def step_errors(power: Sequence[float]) -> Mapping[str, Sequence[float]]:
    """Sorted absolute log errors of each quantity of training steps in half precision, from those of power otherwise.

    Time and power are taken to err independently.
    """
    time, watts = np.meshgrid(STEP_ERRORS, np.asarray(power, dtype=float))

    def as_many(errors: FloatArray) -> Sequence[float]:
        """As many errors as there are of time, so that no more is claimed than these support."""
        levels = (np.arange(len(STEP_ERRORS)) + 0.5) / len(STEP_ERRORS)
        return [float(error) for error in np.quantile(errors, levels)]

    return {
        "time": STEP_ERRORS.tolist(),
        "power": sorted(map(float, power)),
        "energy": as_many(np.hypot(time, watts)),
        "edp": as_many(np.hypot(2 * time, watts)),
    }


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
