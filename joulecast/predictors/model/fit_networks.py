"""Fitting the energy constants to the powers of single operations and of measured networks.

Only few networks were measured, and they are similar. What they do not determine is determined by priors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ...errors import needing, with_extra
from ..contract import Networks
from ..measured import AT_CAP, DeviceRow
from ..networks.composition import counts_of
from ..physics.energy import ENERGY_SPREAD, L2_SAVES, PRIOR_ENERGY, EnergyConstants, static_power_w
from .shared import SharedByAll

# Weights in the fit of energies of a loop, and of one at the power cap, where a network has weight 1. Without readings
# at the cap, an A30's networks below it come out 12 % too low; with 0.2 for all loops, its loops below the cap 11 % too
# high, and six served runs on an A100, which had no part in the fit, 16 % (13 with these weights, 8 without).
_LOOPS_COUNT, _CAPPED_COUNT = 0.2, 0.05
# Standard deviations of a network's log time, of the logarithm of HalfPrecision, and of host seconds per call.
_ERROR, _HALF_SPREAD, _HOST_SPREAD_S = 0.05, 0.5, 20e-6


def fit_energies(rows: Sequence[DeviceRow], networks: Networks, shared: SharedByAll) -> EnergyConstants:
    """Fit the energy constants to measured powers of single operations and of whole networks.

    A reading at the power cap is a lower bound, unless the clock that was held is known. Priors tell the five constants
    apart where the measured GPUs do not.
    """
    measured = _powers(rows, networks, shared)
    if not measured:
        return PRIOR_ENERGY
    with needing("training needs scipy", with_extra("train")):
        from scipy.optimize import least_squares
    parts, power_w, static_w, weight, at_least = map(np.array, zip(*measured, strict=True))
    prior = np.log(PRIOR_ENERGY.values())
    spread = np.log(ENERGY_SPREAD)

    def residuals(log_constants: FloatArray) -> FloatArray:
        errors = np.log((static_w + parts @ np.exp(log_constants)) / power_w)
        # What a GPU would draw at its highest clock is at least what it drew at its power cap.
        errors = weight * np.where(at_least, np.minimum(errors, 0.0), errors) / (2 * _ERROR)
        return np.concatenate([errors, (log_constants - prior) / spread])

    return EnergyConstants.of(np.exp(least_squares(residuals, prior, loss="soft_l1").x), L2_SAVES)


def _powers(
    rows: Sequence[DeviceRow], networks: Networks, shared: SharedByAll
) -> list[tuple[FloatArray, float, float, float, bool]]:
    """Measured powers: amount of each energy constant per second, watts, static watts, weight, and if it is a bound."""
    found = []
    for gpu in dict.fromkeys(row.gpu for row in rows):
        mine = [(row, row.power_w) for row in rows if row.power_w and row.gpu == gpu]
        if not mine:
            continue
        clock, device_s = float(gpu.boost_clock_mhz), np.array([row.device_s for row, _ in mine])
        paid = EnergyConstants.parts([row.operation for row, _ in mine], device_s, gpu, clock, L2_SAVES)
        for (_, power_w), part in zip(mine, paid / device_s[:, None], strict=True):
            at_cap = power_w >= AT_CAP * gpu.power_limit_w
            weight = _CAPPED_COUNT if at_cap else _LOOPS_COUNT
            found.append((part, power_w, static_power_w(gpu, clock), weight, at_cap))
    for gpu, measurement, network in networks:
        at_cap = measurement.clock_mhz is None and measurement.known_power_w > AT_CAP * gpu.power_limit_w
        clock = measurement.clock_mhz or float(gpu.boost_clock_mhz)
        operations, counts = network.operations, counts_of(network)
        predictor = shared.on(gpu, measurement.mode)
        inside = predictor.in_network(predictor.predict_for_network(operations, gpu.power_limit_w))
        device_s = np.nan_to_num(inside.device_time_s if inside.work is None else inside.work.at(clock)[0])
        # The predicted device time must not exceed the measured time, in which the GPU drew the measured power.
        device_s *= min(1.0, measurement.time_s / float(counts @ device_s))
        part = counts @ EnergyConstants.parts(operations, device_s, gpu, clock, L2_SAVES) / measurement.time_s
        found.append((part, measurement.known_power_w, static_power_w(gpu, clock), 1.0, at_cap))
    return found
