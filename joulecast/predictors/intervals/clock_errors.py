"""The error that a clock adds if nothing was measured at it.

Networks on the A100 were measured at several clocks (energaizer2026) and predicted without any measurement of that
chip. For 92 pairs of a clock and the network's highest clock, the difference of their log errors was divided by the
octaves between the two clocks. The lists are the quantiles of the results, in steps of 1/40; `python
benchmarks/clock_errors.py` makes them. No dataset has another GPU at several clocks, so they are used for all GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import FloatArray

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
