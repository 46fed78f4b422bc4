"""What measuring loops show, and constants that are read off them, against arithmetic by hand."""

import numpy as np
import pytest
from round_gpu import ROUND

from joulecast.operations.operation import Operation
from joulecast.predictors.physics.baseline import Baseline, GroupConstants, Loops, group_of

RELU = Operation("relu", [(1000, 1000)])
GELU = Operation("gelu", [(1000, 1000)])
TRAINING = RELU.replace(mode="training")
IDENTITY = Operation("dropout", [(1000, 1000)])  # which does nothing in inference
HOST_S = {"short": 10e-6, "long": 30e-6}
# relu moves 4 MB five times in training; adding its gradient up moves it three times more, at 100 / 1.17 GB/s.
ADDED_S = 12e6 * 1.17 / 1e11


def baseline(accumulates=(), method="short", **groups):
    known = groups or {
        "relu": GroupConstants(HOST_S, slowdown=2.0, device_slowdown=1.5, active_power_w=150.0, large_loops=7)
    }
    return Baseline({f"{kind} fp32": row for kind, row in known.items()}, 50.0, method, frozenset(accumulates))


def costs(known, *seconds_and_watts, operation=RELU):
    """Device times and dynamic energies that loops of one operation show."""
    seconds, watts = (np.array(column) for column in zip(*seconds_and_watts, strict=True))
    count = len(seconds)
    return known.device_costs([operation] * count, ["relu fp32"] * count, Loops(seconds, watts), ROUND)


def fitted(*rows, accumulates=frozenset()):
    """Rows of operation, seconds, watts, roofline seconds and method, if that is not `loop`."""
    operations, seconds, watts, line_s, methods = zip(*((*row, "loop")[:5] for row in rows), strict=True)
    powers = np.array([np.nan if watt is None else watt for watt in watts])
    loops = Loops(np.array(seconds), powers)
    return Baseline.fit(operations, loops, methods, np.array(line_s), ROUND, accumulates)


def groups(*rows, **more):
    """Kind -> its constants after a fit, in fp32."""
    return {name.removesuffix(" fp32"): row for name, row in fitted(*rows, **more).groups.items()}


SMALL, LARGE = (RELU, 20e-6, 60.0, 200e-6), (RELU, 1e-3, 150.0, 200e-6)


def test_kinds_that_were_not_measured_have_stand_ins_in_their_order():
    def stand_in(operation, *measured):
        known = dict.fromkeys(measured, GroupConstants(HOST_S, 1.0, 1.0, 100.0))
        return baseline(**known).stand_in(operation, ROUND)

    assert group_of(RELU.replace(precision="bf16"), ROUND) == "relu bf16"
    copy = Operation("copy", [(10, 10)])
    assert stand_in(RELU, "relu") == stand_in(GELU, "relu", "silu") == stand_in(copy, "relu") == "relu fp32"
    assert stand_in(RELU, "gelu", "silu") == "silu fp32"
    assert stand_in(copy, "linear") is stand_in(RELU.replace(precision="bf16"), "relu") is None
    # Collectives are known only where they were measured.
    gather, reduce = (Operation(kind, [(1000,)], {"gpus": 2}) for kind in ("all_gather", "all_reduce"))
    assert (stand_in(reduce, "all_reduce"), stand_in(gather, "all_reduce")) == ("all_reduce fp32", None)


def test_a_loop_takes_the_norm_of_host_and_device():
    """The device needs twice its roofline of 40 us, the host 10 us or 30 us."""
    known, of = baseline(), (["relu fp32"], np.array([40e-6]))
    assert known.loop_s(*of) == pytest.approx([1e-6 * (80**4 + 10**4) ** 0.25])
    assert known.loop_s(*of, ["long"]) == pytest.approx([1e-6 * (80**4 + 30**4) ** 0.25])
    assert known.device_s(*of) == pytest.approx([60e-6])
    assert (known.host_s(of[0]).tolist(), known.active_power_w(of[0]).tolist()) == ([10e-6], [150.0])
    assert baseline(method="long").host_s(of[0]).tolist() == [30e-6]


def test_the_device_time_follows_from_the_power():
    """At 50 W static and 150 W active, 75 W mean busy for a quarter. Loops of twice the host's time show the device."""
    found = costs(baseline(), (12e-6, 75.0), (20e-6, 75.0), (21e-6, 75.0), (12e-6, 160.0), (12e-6, 40.0))
    assert found.time_s == pytest.approx([3e-6, 5e-6, 21e-6, 12e-6, 0.0])
    assert found.dynamic_energy_j == pytest.approx([25 * 12e-6, 25 * 20e-6, 25 * 21e-6, 110 * 12e-6, 0.0])
    # An active power of 50.5 W counts as 1 W above the static power: 50.25 W means busy for a quarter.
    near = baseline(relu=GroupConstants(HOST_S, 1.0, 1.0, 50.5))
    assert costs(near, (12e-6, 50.25)).time_s == pytest.approx([3e-6])


@pytest.mark.parametrize(
    ("accumulates", "loop_s", "left"),
    [
        (["short"], 1e-3, 1 - ADDED_S / 1e-3),
        # In the cache it is as much quicker as the rest: its share of the bytes, 3 of 8.
        (["short"], 100e-6, 5 / 8),
        (["long"], 1e-3, 1),
    ],
)
def test_gradients_that_a_loop_adds_up_are_taken_off(accumulates, loop_s, left):
    found = costs(baseline(accumulates), (loop_s, 150.0), operation=TRAINING)
    assert found.time_s == pytest.approx([loop_s * left])
    assert found.dynamic_energy_j == pytest.approx([(150 - 50) * loop_s * left])


def test_constants_are_read_off_loops():
    """Twenty loops of 10 to 29 us wait for the host; three of 400, 500 and 800 us show the device: 2 to 4 times 200."""
    rows = [(RELU, 1e-6 * (10 + n), 60.0, 200e-6) for n in range(20)]
    large = ((400e-6, 140.0), (500e-6, 160.0), (800e-6, 150.0))
    found = fitted(*rows, *((RELU, seconds, watts, 200e-6) for seconds, watts in large))
    row = found.groups["relu fp32"]
    # The 5 % quantile of 23 values lies at 1.1 of 22 steps: 11.1 us.
    assert row.host_s == {"loop": pytest.approx(11.1e-6)}
    assert row.slowdown == row.device_slowdown == pytest.approx(500 / 200)
    assert (row.active_power_w, row.large_loops) == (150.0, 3)
    assert (found.static_power_w, found.method) == (60.0, "loop")
    assert Baseline.from_dict(found.to_dict()) == found


def test_a_kind_that_always_waits_for_the_host_is_as_slow_as_others_if_its_quickest_loop_allows():
    relus = ((10e-6, 1e-6), (100e-6, 50e-6), (120e-6, 60e-6), (140e-6, 70e-6))
    gelus = ((10e-6, 3e-6), (11e-6, 3e-6), (12e-6, 3e-6), (13e-6, 10e-6))
    found = groups(*((kind, s, 100.0, line_s) for kind, rows in ((RELU, relus), (GELU, gelus)) for s, line_s in rows))
    assert found["relu"].slowdown == pytest.approx(2.0)
    # Its quickest loop takes 13 us, and its roofline 10 us.
    assert found["gelu"].slowdown == pytest.approx(1.3)
    assert (found["gelu"].large_loops, found["gelu"].active_power_w) == (0, 100.0)


def test_host_times_are_those_of_the_method_that_most_loops_were_run_by():
    often, seldom = (RELU, 10e-6, 60.0, 1e-6, "often"), (RELU, 40e-6, 60.0, 1e-6, "seldom")
    # A method that never ran a kind launches it about as fast as the others.
    found = fitted(*[often] * 3, *[seldom] * 2, (GELU, 7e-6, 60.0, 1e-6, "often"))
    assert found.method == "often"
    assert found.groups["relu fp32"].host_s == pytest.approx({"often": 10e-6, "seldom": 40e-6})
    assert found.host_s(["relu fp32"]).tolist() == pytest.approx([10e-6])
    assert found.groups["gelu fp32"].host_s == pytest.approx({"often": 7e-6, "seldom": 7e-6})


@pytest.mark.parametrize(("adds", "added_s"), [("loop", ADDED_S), ("another", 0)])
def test_gradients_that_loops_add_up_are_part_of_a_loop_but_not_of_a_network(adds, added_s):
    """A kind that always waits for the host is as slow as the others, with and without them."""
    rows = [(TRAINING, *SMALL[1:]), *[(TRAINING, *LARGE[1:])] * 3]
    rows += [(GELU.replace(mode="training"), 20e-6, 60.0, 1e-6)] * 3
    found = fitted(*rows, accumulates=frozenset({adds}))
    assert found.accumulates_gradients == {adds}
    for row in found.groups.values():
        assert row.slowdown == pytest.approx(1e-3 / 200e-6)
        assert row.device_slowdown == pytest.approx((1e-3 - added_s) / 200e-6)


def test_gradients_of_parameters_are_added_up_with_those_of_the_input():
    """linear, 1000 x 1000 to 1000: input and weights are 4 MB each. 24 MB at 100 GB/s / 1.17."""
    linear = Operation("linear", [(1000, 1000)], {"out_features": 1000, "bias": False}, mode="training")
    found = groups((linear, 20e-6, 60.0, 6e-3), (linear, 9e-3, 150.0, 6e-3), accumulates=frozenset({"loop"}))
    assert found["linear"].device_slowdown == pytest.approx((9e-3 - 24e6 * 1.17 / 1e11) / 6e-3)


HUNGRY = (RELU, 1e-3, 170.0, 200e-6)
SMALL_GELU, LARGE_GELU, UNREAD_GELU = (
    (GELU, *each) for each in (SMALL[1:], (1e-3, 90.0, 200e-6), (1e-3, None, 200e-6))
)


@pytest.mark.parametrize(
    ("rows", "watts"),
    [
        # Small loops draw 60 W, large ones 150 W and 170 W. gelu has no large loop, or none whose power can be used: it
        # gets the median of all large ones.
        ([*[SMALL] * 9, *[LARGE] * 2, *[HUNGRY] * 3, *[SMALL_GELU] * 9], {"relu": 170.0, "gelu": 170.0}),
        ([*[SMALL] * 9, *[LARGE] * 2, *[HUNGRY] * 3, SMALL_GELU, UNREAD_GELU], {"relu": 170.0, "gelu": 170.0}),
        ([SMALL, SMALL_GELU, LARGE, LARGE_GELU], {"relu": 150.0, "gelu": 90.0}),
        # Without any power of large loops, all powers tell: the median of 50, 60 and 90 W.
        ([*((RELU, 10e-6, each, 1e-5) for each in (50.0, 60.0, 90.0)), (RELU, 4e-4, None, 1e-5)], {"relu": 60.0}),
    ],
    ids=["no large loop", "a large loop without power", "each its own", "no power of large loops"],
)
def test_power_while_the_device_works_is_that_of_large_loops(rows, watts):
    assert {kind: row.active_power_w for kind, row in groups(*rows).items()} == watts


def test_a_kind_without_work_has_the_slowdown_of_the_others_or_one():
    idle, large = [(IDENTITY, 10e-6, 60.0, 1e-9)] * 3, [SMALL, *[LARGE] * 3]
    assert groups(*idle)["dropout"].slowdown == 1.0
    assert groups(*idle, *large)["dropout"].slowdown == pytest.approx(5.0)
    # Of three other kinds, 5, 3 and 2 times as slow as their rooflines, the median counts.
    more = []
    for kind, slower in (("gelu", 3), ("exp", 2)):
        other = Operation(kind, [(9, 9)])
        more += [(other, *SMALL[1:]), *[(other, slower * 200e-6, 150.0, 200e-6)] * 3]
    assert groups(*idle, *large, *more)["dropout"].slowdown == pytest.approx(3.0)
