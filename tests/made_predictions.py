"""Predictions of operations with given costs, for arithmetic by hand in tests of networks and intervals."""

import numpy as np

from joulecast import Operation
from joulecast.predictors.operation_predictions import OperationPredictions

RELU = Operation("relu", [(8, 8)])


def predictions(device_s, host_s, dynamic_j, static_w=50.0, time_s=None, energy_j=None, operations=None, work=None):
    """Operations with these costs, relu unless others are given; NaN is missing."""
    count = len(device_s)
    return OperationPredictions(
        operations=tuple(operations or (RELU,) * count),
        time_s=np.array(device_s if time_s is None else time_s),
        power_w=np.full(count, 100.0),
        energy_j=np.array(dynamic_j if energy_j is None else energy_j),
        device_time_s=np.array(device_s),
        dynamic_energy_j=np.array(dynamic_j),
        host_time_s=np.array(host_s),
        source=tuple("missing" if np.isnan(value) else "modelled" for value in device_s),
        static_power_w=static_w,
        held_clock_mhz=np.full(count, 1440.0),
        work=work,
    )
