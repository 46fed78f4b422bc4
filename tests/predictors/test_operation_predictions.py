"""Predictions of operations: impossible values become missing ones, and never look like small costs."""

from dataclasses import replace

import numpy as np
import pytest

import joulecast
from joulecast import Operation

OPERATIONS = [Operation("linear", [(n, 512)], {"out_features": 512}) for n in (64, 128, 256)]


@pytest.mark.parametrize("column", ["time_s", "power_w", "energy_j", "device_time_s"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e-9, -3e34])
def test_impossible_predictions_are_missing(column, value):
    found = joulecast.predict_operations(OPERATIONS, "H100 SXM")
    assert found.source == ("modelled",) * 3
    values = getattr(found, column).copy()
    values[1] = value
    changed = replace(found, **{column: values})
    assert changed.source == ("modelled", "missing", "modelled")
    for name in ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j", "host_time_s"):
        assert np.isnan(getattr(changed, name)).tolist() == [False, True, False]
        assert getattr(changed, name)[[0, 2]].tolist() == getattr(found, name)[[0, 2]].tolist()


def test_possible_predictions_are_left_as_they_are():
    found = joulecast.predict_operations(OPERATIONS, "A30")
    assert replace(found).time_s is found.time_s
