"""Which errors an operation's interval is looked up from, and how those of operations make a network's, by hand."""

import math

import numpy as np
import pytest

from joulecast.operations.operation import Operation
from joulecast.predictors.intervals.calibration import (
    SCALED_POWER,
    Calibration,
    Cases,
    Closeness,
    ErrorGroup,
    PowerUnits,
)
from joulecast.predictors.intervals.network_calibration import Difficulty, NetworkCalibration, variances
from joulecast.predictors.intervals.operation_spread import OperationSpread

CONV = Operation("conv2d", [(1, 8, 8, 8)], {"out_channels": 8, "kernel_size": 3})
RELU = Operation("relu", [(8, 8)])
FAMILY = CONV.row.family


def group(farthest, error, **more):
    """Nine errors up to `error`: of nine, a level of 0.9 takes the ninth, and 0.5 the fifth."""
    quantities = {"time": error, **more}
    return ErrorGroup(farthest, {name: np.linspace(value / 9, value, 9) for name, value in quantities.items()})


CALIBRATION = Calibration(
    Closeness({}),
    {
        "": (group(9.0, 0.9, power=0.99, energy=1.2),),
        "GPU": (group(5.0, 0.5),),
        f"{FAMILY} GPU": (group(1.0, 0.1), group(2.0, 0.2), group(4.0, 0.4)),
        f"{FAMILY} host": (group(6.0, 0.6),),
        "measured GPU": (group(1.0, 0.01),),
        "measured": (group(1.0, 0.02),),
        f"kind never measured, {FAMILY}": (group(1.0, 0.7),),
        "kind never measured": (group(1.0, 0.8),),
    },
)


@pytest.mark.parametrize(
    ("operation", "host", "measured", "distance", "half"),
    [
        pytest.param(CONV, False, False, 0.5, 0.1, id="nearest bin"),
        pytest.param(CONV, False, False, 1.0, 0.1, id="at the end of a bin"),
        pytest.param(CONV, False, False, 1.5, 0.2, id="second bin"),
        pytest.param(CONV, False, False, 3.0, 0.4, id="third bin"),
        pytest.param(CONV, False, False, 30.0, 0.4, id="beyond the last bin"),
        pytest.param(CONV, True, False, 0.5, 0.6, id="bound by the host"),
        pytest.param(CONV, False, True, 0.0, 0.01, id="measured"),
        pytest.param(CONV, True, True, 0.0, 0.02, id="measured, in a group of both bounds"),
        pytest.param(CONV, False, False, math.inf, 0.7, id="another kind of its family stands in"),
        pytest.param(RELU, False, False, math.inf, 0.8, id="another kind stands in"),
        pytest.param(RELU, False, False, 1.0, 0.5, id="a family without errors: all bound by the GPU"),
        pytest.param(RELU, True, False, 1.0, 0.9, id="all together"),
    ],
)
def test_groups(operation, host, measured, distance, half):
    asked = ([operation], np.array([host]), np.array([measured]), np.array([distance]))
    assert CALIBRATION.log_errors("time", 0.9, Cases(*asked)).tolist() == pytest.approx([half])
    assert CALIBRATION.log_errors("time", 0.5, Cases(*asked)).tolist() == pytest.approx([half * 5 / 9])


def test_a_quantity_that_a_group_lacks_is_that_of_all():
    asked = ([CONV, CONV], np.array([False, True]), np.zeros(2, bool), np.array([0.5, 0.5]))
    assert CALIBRATION.log_errors("energy", 0.9, Cases(*asked)).tolist() == pytest.approx([1.2, 1.2])
    assert np.isnan(CALIBRATION.log_errors("edp", 0.9, Cases(*asked))).all()
    assert CALIBRATION.log_errors("power", 0.9, Cases(*asked), np.array([60.0, 80.0])).tolist() == pytest.approx(
        [0.99, 0.99]
    )


def test_a_group_with_too_few_errors_takes_those_of_all():
    few = Calibration(
        Closeness({}), {"": (group(9.0, 0.9),), "GPU": (ErrorGroup(1.0, {"time": np.array([0.1, 0.2])}),)}
    )
    asked = ([CONV], np.array([False]), np.array([False]), np.array([0.5]))
    assert few.log_errors("time", 0.9, Cases(*asked)).tolist() == pytest.approx([0.9])
    # Of two, the second covers two thirds.
    assert few.log_errors("time", 0.6, Cases(*asked)).tolist() == pytest.approx([0.2])


def test_powers_count_in_units_of_what_is_typical_for_them():
    units = PowerUnits(np.array([50.0, 150.0]), np.array([0.01, 0.04]))
    scaled = Calibration(Closeness({}), {"": (group(9.0, 0.9, **{SCALED_POWER: 2.0}),)}, units)
    asked = ([CONV, CONV], np.zeros(2, bool), np.zeros(2, bool), np.array([0.5, 0.5]))
    assert scaled.log_errors("power", 0.9, Cases(*asked), np.array([50.0, 100.0])).tolist() == pytest.approx(
        [0.02, 0.04]
    )


def test_a_standard_deviation_is_the_error_that_68_percent_do_not_exceed():
    """ceil(10 x 0.6827) is the seventh of nine; it is looked up among loops that are bound by the GPU."""
    sigmas = OperationSpread(CALIBRATION, frozenset(), None).sigmas((CONV,))
    assert sigmas["time"].tolist() == pytest.approx([0.1 * 7 / 9])


def test_far_outside_is_beyond_the_farthest_group_of_the_family():
    """6 for loops of the family that wait for the host, 9 for others. Kinds with a stand-in do not count as far."""
    distances = np.array([6.5, 5.5, 9.5, 8.5, math.inf])
    found = CALIBRATION.far_outside([CONV, CONV, RELU, RELU, CONV], distances)
    assert found.tolist() == [True, False, True, False, False]


def test_the_difficulty_of_a_network():
    """Half of the time in an operation of the nearest bin, half in one of the third."""
    near, far = 0.1 * 7 / 9, 0.4 * 7 / 9
    found = variances(np.array([0.5, 0.5]), np.array([near, far]))
    assert found.tolist() == pytest.approx([((near + far) / 2) ** 2, (near**2 + far**2) / 4])
    alike, apart = found
    of_network = Difficulty(0.03, 0.25).of(found)
    assert float(of_network) == pytest.approx(math.sqrt(0.03**2 + 0.25 * alike + 0.75 * apart))


def test_networks_come_back_from_storage():
    errors = {name: np.linspace(0.1, 0.9, 9) for name in ("time", "power", "energy", "edp")}
    known = NetworkCalibration(
        {"time": Difficulty(0.03, 0.25), "energy": Difficulty(0.04, 0.5), "power": Difficulty(0.05, 0.75)},
        {"overlap": errors},
        "networks of a test",
    )
    again = NetworkCalibration.from_dict(known.to_dict())
    assert again.basis == known.basis
    assert again.difficulties == known.difficulties
    assert {name: row.tolist() for name, row in again.scores["overlap"].items()} == {
        name: pytest.approx(row.tolist(), abs=1e-4) for name, row in errors.items()
    }
    found = again.summed(dict.fromkeys(known.difficulties, np.array([0.01, 0.02])))
    assert found["edp"] == pytest.approx(found["time"] + found["energy"])
    assert NetworkCalibration({}, {"overlap": errors}, "x").summed({})["time"] == 1.0
