"""Intervals of served models, from the errors of their kernels and of published runs.

The following errors add up, each a standard deviation of a logarithm:

- Kernels of one kind are wrong together inside a step, so their errors are added as shares of its time. Kinds are wrong
  independently of each other. A kernel whose errors are not known is taken to be as wrong as the others are on average.
  Power and joules that follow from whole runs (run_energy.py) are as wrong as those of models that were left out.
- The time that an engine takes for itself is known within a factor of two, unless the user has said how long it is.
- The machine around the GPUs, if it is not named, may be slower than the engine expects: then all kernels wait for it,
  the power falls, and a token costs more static energy. It never makes a run quicker, so it moves one end of each
  interval only.
- Whatever else a step costs adds 7 %.

The last two were set with the published runs that were looked at, and checked with those held back
(benchmarks/serving/REPORT.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ..arrays import FloatArray
from ..predictors.intervals.conformal import require_level
from ..rendering.answers import Plain

BASIS = "errors of kernels on sizes that were left out, and of published runs of engines"
KERNEL_LEVEL = 0.9
"""Level at which the errors of kernels are looked up."""

HOST_S = 10e-3
"""Seconds that a slow host adds to a step, as one standard deviation. ML.ENERGY's runs of vLLM 0.11.1 prepare the
next step while the last one runs. No step of theirs waited for its host on H100, but most on one B200 did, some for
25 ms. It was chosen with the three models that were looked at, of whose 72 runs 90 % intervals of time, power and
energy hold 90, 89 and 94 %; of the 181 runs of other models they hold 93, 91 and 90 % (benchmarks/serving/ENERGY.md).
As nobody can tell which host waits, that is nearly all runs where none does, and fewer where all do. A host that is
named has no such spread."""

_STEP_SIGMA = 0.07
_LEAST_S = 1e-15


def normal_quantile(level: float) -> float:
    """The number of standard deviations around the mean that contain a share `level` of a normal distribution.

    Raises InputError: the level is not between 0 and 1.
    """
    require_level(level)
    return NormalDist().inv_cdf((1 + level) / 2)


def step_sigmas(
    halves: Mapping[str, FloatArray],
    seconds: FloatArray,
    kinds: Sequence[str],
    waiting_share: float,
    wait_sigma: float,
) -> Mapping[str, float]:
    """Standard deviations of the logarithms of a step's time, power and energy.

    `halves`: Quantity -> half widths of the intervals of each operation at KERNEL_LEVEL, in logarithms. `seconds`,
    `kinds`: Seconds of all calls of each operation, and its kind; all of shape (operations,). `waiting_share`: Share of
    the step's time in which the GPU waits for the engine, or for a host that launches. `wait_sigma`: Standard deviation
    of the logarithm of that time.
    """
    waiting = max(0.0, waiting_share)
    shares = (1 - waiting) * seconds / max(float(seconds.sum()), _LEAST_S)
    found = {}
    for quantity, half in halves.items():
        by_kind: dict[str, float] = defaultdict(float)
        # Unknown half widths (NaN) are the mean of the others, weighted with their shares of the time.
        unknown = np.isnan(half)
        known, weight = np.where(unknown, 0.0, half), float(shares[~unknown].sum())
        widths = np.where(unknown, float((shares * known).sum()) / weight if weight else 0.0, half)
        for kind, part in zip(kinds, shares * widths / normal_quantile(KERNEL_LEVEL), strict=True):
            by_kind[kind] += float(part)
        # The power of a board that waits is known far better than the time for which it waits.
        of_engine = waiting * wait_sigma if quantity == "time" else 0.0
        found[quantity] = math.hypot(*by_kind.values(), of_engine, _STEP_SIGMA)
    return found


def factors(
    level: float, sigmas: Mapping[str, float], step_s: float, idle_share: float, host_s: float
) -> Mapping[str, tuple[float, float]]:
    """Factors between which the true values of a share of runs lie, by quantity.

    A slow host lengthens times, lowers power and costs energy, as boards do the same work and draw idle power
    meanwhile; errors of kernels are independent of it.

    `level`: The share of runs. `sigmas`: Quantity -> standard deviation of its logarithm, with a host that is quick
    enough. `step_s`: Seconds of a step. `idle_share`: Power of boards without work, relative to their mean power.
    `host_s`: Seconds that a slow host adds to a step, as one standard deviation; 0 for a host that is known.
    """
    z = normal_quantile(level)
    time = (1 + host_s / step_s) ** z
    energy = 1 + (time - 1) * idle_share
    slow = {"time": time, "power": time / energy, "energy": energy}
    found = {}
    for quantity, sigma in sigmas.items():
        usual, slower = z * sigma, math.hypot(z * sigma, math.log(slow[quantity]))
        below, above = (slower, usual) if quantity == "power" else (usual, slower)
        found[quantity] = math.exp(-below), math.exp(above)
    return found


@dataclass(frozen=True)
class Listed(Plain):
    """Intervals of several quantities, which JSON holds as lists.

    Args:
        level: The share of runs whose values should lie in the intervals.
    """

    level: float


@dataclass(frozen=True)
class GenerationInterval(Listed):
    """The interval of each quantity, as (low, high).

    Args:
        time_to_first_token_s, time_per_output_token_s: Intervals of the times of a request in seconds.
        power_w: Interval of the mean power of all boards together in watts.
        energy_per_token_j: Interval of the joules per token.
        basis: What the intervals are based on, in words.
    """

    time_to_first_token_s: tuple[float, float]
    time_per_output_token_s: tuple[float, float]
    power_w: tuple[float, float]
    energy_per_token_j: tuple[float, float]
    basis: str = BASIS
