"""Intervals of single predictions and of networks: looked up, widened, sent to a client; against arithmetic by hand."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from made_predictions import predictions as made

import joulecast
from joulecast.errors import InputError
from joulecast.operations.operation import Operation
from joulecast.predictors.intervals.calibration import (
    COORDINATES,
    SCALED_POWER,
    Calibration,
    Cases,
    Closeness,
    ErrorGroup,
    PowerUnits,
    coordinates,
)
from joulecast.predictors.intervals.conformal import STEP_ERRORS
from joulecast.predictors.intervals.network_calibration import (
    STEP_BASIS,
    Difficulty,
    NetworkCalibration,
    NetworkSpread,
    shares_of,
    variances,
)
from joulecast.predictors.intervals.operation_spread import OperationSpread, SentOperationSpread

RELU, SORT = Operation("relu", [(8, 16)]), Operation("sort", [(8, 16)])
# Of nine sorted errors, a level of 0.9 takes the ninth: ceil(10 x 0.9).
ERRORS = np.linspace(0.01, 0.09, 9)


def predictions(*operations):
    """1 ms and 0.1 J of the device for each, 2 ms and 0.2 J in all."""
    device_s, host_s, dynamic_j, time_s, energy_j = (
        [value] * len(operations) for value in (1e-3, 1e-5, 0.1, 2e-3, 0.2)
    )
    return made(device_s, host_s, dynamic_j, time_s=time_s, energy_j=energy_j, operations=operations)


def spread(*operations, counts=None, missing_share=0.0, measured_mhz=None, errors=ERRORS):
    networks = NetworkCalibration.of_errors(
        dict.fromkeys(("time", "power", "energy", "edp"), errors), "networks of a test"
    )
    counts = np.ones(len(operations)) if counts is None else counts
    composition = next(iter(networks.scores))
    shares = {"missing_share": missing_share, "measured_mhz": measured_mhz}
    return NetworkSpread.of(networks, composition, None, counts, predictions(*operations), **shares)


def test_coordinates_by_hand():
    """relu of 8 x 16 in fp32: 128 FLOPs, 512 bytes in and out. Counts are one higher, so that none has no logarithm."""
    found = dict(zip(COORDINATES, coordinates([RELU])[0].tolist(), strict=True))
    values = list(found.values())
    assert values[0] == pytest.approx(math.log2(RELU.flops + 1), rel=1e-6)
    assert values[1] == pytest.approx(math.log2(512 + 512 + 1), rel=1e-6)
    assert values[2] == pytest.approx(3.0)
    assert values[-1] == 0.0
    # bf16 is place 3 of the precisions, each of which is 2 away from the next.
    assert coordinates([RELU.replace(precision="bf16")])[0, -1] == 6.0


@pytest.mark.parametrize(
    ("watts", "units"), [([], []), ([50.0], []), ([60.0, 50.0], [0.1, 0.1]), ([50.0, 60.0], [0.1, 0.0])]
)
def test_units_of_power_that_are_damaged(watts, units):
    with pytest.raises(ValueError, match=r"^units of power need ascending watts"):
        PowerUnits.from_dict({"watts": watts, "units": units})


def test_a_calibration_needs_a_group_for_all_and_none_that_is_empty():
    few, one = (ErrorGroup(1.0, {"time": np.array(errors)}) for errors in ([0.1, 0.2], [0.1]))
    whole = Calibration(Closeness({}), {"": (few,), "normalization GPU": (one,)}).to_dict()
    assert set(Calibration.from_dict(whole).groups) == {"", "normalization GPU"}
    assert Calibration.from_dict(whole).power_units is None
    for groups in ({name: rows for name, rows in whole["groups"].items() if name}, {**whole["groups"], "x": []}):
        with pytest.raises(ValueError, match="lack the group"):
            Calibration.from_dict({**whole, "groups": groups})


def test_networks_by_errors_without_difficulty():
    """The ninth error of nine: a factor of exp(0.09) up and down; two of them for what is missing by half."""
    low, high = spread(RELU).around("time", 1e-3, 0.9, 1440.0)
    assert (low, high) == pytest.approx((1e-3 * math.exp(-0.09), 1e-3 * math.exp(0.09)))
    missing = spread(RELU, missing_share=0.5)
    assert missing.around("energy", 1.0, 0.9, 1440.0) == pytest.approx((math.exp(-0.09), 2 * math.exp(0.09)))
    assert missing.around("edp", 1.0, 0.9, 1440.0)[1] == pytest.approx(4 * math.exp(0.09))
    assert missing.around("power", 1.0, 0.9, 1440.0)[1] == pytest.approx(math.exp(0.09))
    # What few measurements show makes half of the time: it may be absent elsewhere.
    unconfirmed = replace(spread(RELU), unconfirmed_share=0.5)
    for quantity, more in (("time", math.log(2)), ("edp", 2 * math.log(2)), ("power", 0)):
        assert unconfirmed.around(quantity, 1.0, 0.9, 1440.0)[1] == pytest.approx(math.exp(math.hypot(0.09, more)))
    assert missing.basis.endswith("what is missing: as much time and energy per FLOP or byte as the rest")
    assert spread(RELU).basis == "networks of a test"


def test_unmeasured_kinds_widen_intervals_by_their_share_of_the_device_time():
    """Nine of ten such kinds lie within a factor of two. At three quarters of the time: 0.75 x log 2 / 0.09."""
    half = spread(RELU, SORT, counts=np.array([1.0, 3.0]))
    assert half.never_measured_kinds == ("sort",)
    assert half.units["time"] == pytest.approx(0.75 * math.log(2) / 0.09, rel=1e-6)
    assert spread(RELU).units["time"] == 1.0
    # A share so small that errors on networks are larger changes nothing.
    assert spread(RELU, SORT, counts=np.array([99.0, 1.0])).units["time"] == 1.0
    # With too few errors for that level there is nothing to compare with.
    assert spread(RELU, SORT, errors=np.array([0.1])).units["time"] == 1.0


def test_levels_that_were_sent_are_those_that_can_be_asked_for():
    half = {"time": np.array([0.1])}
    sent = SentOperationSpread({0.5: half, 0.9: half}, (True,))
    assert sent.log_errors(predictions(RELU), 0.9) is half
    assert sent.far_outside([RELU]).tolist() == [True]
    with pytest.raises(InputError) as caught:
        sent.log_errors(predictions(RELU), 0.7)
    assert caught.value.what == "intervals that come from a service have certain levels"
    assert (caught.value.given, caught.value.allowed) == (0.7, "0.5, 0.9")


def test_operations_are_sent_at_all_levels_that_their_errors_support():
    """Nine errors support levels up to 0.9; of the half widths, those at 0.9 are the ninth error."""
    errors = dict.fromkeys(("time", "power", "energy"), ERRORS)
    calibration = Calibration(Closeness({}), {"": (ErrorGroup(1.0, errors),)})
    known = OperationSpread(calibration, frozenset({RELU.digest}), 1440.0)
    sent = known.as_sent(predictions(RELU))
    assert set(sent.half_widths) == {0.5, 0.68, 0.8, 0.9}
    assert sent.half_widths[0.9]["time"].tolist() == pytest.approx([0.09])
    assert sent.far == (False,)


def calibration_of(error):
    errors = dict.fromkeys(("time", "power", "energy"), np.full(9, error))
    return Calibration(Closeness({}), {"": (ErrorGroup(1.0, errors),)})


def test_another_clock_widens_by_what_it_adds_per_octave():
    """Two octaves below the measured clock add twice what one adds; independent errors add as squares."""
    known = OperationSpread(calibration_of(0.09), frozenset({RELU.digest}), 1440.0)

    def added(held_mhz):
        asked = replace(predictions(RELU), held_clock_mhz=np.array([held_mhz]))
        half = known.log_errors(asked, 0.9)["time"][0]
        return math.sqrt(half**2 - 0.09**2)

    assert added(1440.0) == 0.0
    assert added(720.0) > 0.01
    assert added(360.0) == pytest.approx(2 * added(720.0))
    assert added(2880.0) == pytest.approx(added(720.0))


def test_operations_of_the_fallback_have_its_errors():
    other = OperationSpread(calibration_of(0.3), frozenset(), None)
    known = OperationSpread(calibration_of(0.1), frozenset({RELU.digest}), None, (other, np.array([False, True])))
    for quantity in ("time", "power", "energy"):
        assert known.log_errors(predictions(RELU, RELU), 0.9)[quantity] == pytest.approx([0.1, 0.3])
    turned = known.take(np.array([1, 0, 1]))
    assert turned.log_errors(predictions(RELU, RELU, RELU), 0.9)["time"] == pytest.approx([0.3, 0.1, 0.3])
    alone = OperationSpread(calibration_of(0.1), frozenset(), None)
    assert alone.take(np.array([0, 0])) is alone


def test_errors_of_another_clock_limit_the_levels_as_well():
    """1000 errors on networks support 0.99; the fewer errors of other clocks do not."""
    many = np.linspace(0.001, 0.1, 1000)
    assert spread(RELU, errors=many).supports(0.99)
    other_clock = spread(RELU, errors=many, measured_mhz=1440.0)
    assert not other_clock.supports(0.99)
    assert other_clock.supports(0.5)


def test_shares_of_a_network_leave_out_what_is_missing():
    """Calls of 1 and 3 ms; the second operation of three is missing. Shares are a quarter and three quarters."""
    asked = replace(predictions(RELU, SORT, RELU), device_time_s=np.array([1e-3, np.nan, 1e-3]))
    shares, known = shares_of(np.array([1.0, 5.0, 3.0]), asked)
    assert shares == pytest.approx([0.25, 0.75])
    assert known.tolist() == [True, False, True]


# Training in half precision has the errors of published steps.


def test_energy_errs_as_time_and_power_together():
    """Nine errors support 90 %: the largest of power is 0.3. That of time is a score times the difficulty."""
    steps = NetworkCalibration.of_training_steps([0.1] * 8 + [0.3])
    units = steps.summed({"time": np.array([0.0, 0.0])})
    spread = NetworkSpread(steps.scores["overlap"], units, 0.0, False, steps.basis, None)
    time = math.log(spread.around("time", 1.0, 0.9, None)[1])
    scores = STEP_ERRORS["scores"]
    assert time == pytest.approx(scores[math.ceil(0.9 * (len(scores) + 1)) - 1] * STEP_ERRORS["floor"])
    for quantity, expected in (("power", 0.3), ("energy", math.hypot(time, 0.3)), ("edp", math.hypot(2 * time, 0.3))):
        low, high = spread.around(quantity, 1.0, 0.9, None)
        assert (math.log(high), -math.log(low)) == pytest.approx((expected, expected))


def test_what_is_better_known_has_narrower_intervals():
    """Kernels of the A100 80GB were measured, those of the RTX 3090 were not, and no convolution in training was."""

    def half(model, shape, gpu):
        found = joulecast.predict(model, shape, gpu, mode="training", precision="bf16")
        return math.log(found.interval(0.9).time_s[1] / found.time_s)

    for precision in ("fp32", "fp16"):  # Half precision has the errors of published steps.
        found = joulecast.predict("bert_base", (8, 128), "H100 SXM", mode="training", precision=precision)
        assert (STEP_BASIS in found.spread.basis) == (precision == "fp16")
    measured, known = (half("bert_base", (32, 128), gpu) for gpu in ("A100 SXM4 80GB", "RTX 3090"))
    assert measured < 0.75 * known
    assert known < half("resnet50", (64, 3, 224, 224), "RTX 3090")


def test_gpus_can_be_ranked_for_fine_tuning():
    """For BERT-base: which of two neighbours is quicker is 99 % sure, and their intervals at 85 % do not touch."""
    gpus = "H100 SXM", "A100 SXM4 80GB", "L40S", "A10", "L4"
    runs = [joulecast.predict_run("bert_base", (32, 128), gpu, samples=1e5, precision="bf16") for gpu in gpus]
    assert all(quick.chance_below(slow) > 0.99 for quick, slow in itertools.pairwise(runs))
    times = [run.interval(0.85).time_s for run in runs]
    assert all(quick[1] < slow[0] for quick, slow in itertools.pairwise(times))


# Which errors an operation's interval is looked up from, and how those of operations make a network's.


CONV = Operation("conv2d", [(1, 8, 8, 8)], {"out_channels": 8, "kernel_size": 3})
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
    """A quantity that a group lacks has the errors of all."""
    asked = Cases([operation], np.array([host]), np.array([measured]), np.array([distance]))
    for quantity, level, error in (("time", 0.9, half), ("time", 0.5, half * 5 / 9), ("energy", 0.9, 1.2)):
        assert CALIBRATION.log_errors(quantity, level, asked).tolist() == pytest.approx([error])
    assert CALIBRATION.log_errors("power", 0.9, asked, np.array([60.0])).tolist() == pytest.approx([0.99])
    assert np.isnan(CALIBRATION.log_errors("edp", 0.9, asked)).all()


def two(operation):
    """An operation twice, which waits for the GPU and was not measured."""
    return Cases([operation] * 2, np.zeros(2, bool), np.zeros(2, bool), np.array([0.5, 0.5]))


def test_a_group_with_too_few_errors_takes_those_of_all():
    few = Calibration(
        Closeness({}), {"": (group(9.0, 0.9),), "GPU": (ErrorGroup(1.0, {"time": np.array([0.1, 0.2])}),)}
    )
    # Of two errors, the second covers two thirds.
    for level, error in ((0.9, 0.9), (0.6, 0.2)):
        assert few.log_errors("time", level, two(CONV)).tolist() == pytest.approx([error] * 2)


def test_powers_count_in_units_of_what_is_typical_for_them():
    """Units lie between known ones in logarithms, and are rounded when they are stored."""
    units = PowerUnits(np.array([50.0, 150.0]), np.array([0.01, 0.04]))
    scaled = Calibration(Closeness({}), {"": (group(9.0, 0.9, **{SCALED_POWER: 2.0}),)}, units)
    found = scaled.log_errors("power", 0.9, two(CONV), np.array([50.0, 100.0]))
    assert found.tolist() == pytest.approx([0.02, 0.04])
    stored = PowerUnits(np.array([50.123456]), np.array([0.12345678])).to_dict()
    assert stored == {"watts": [50.1235], "units": [0.123457]}


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
