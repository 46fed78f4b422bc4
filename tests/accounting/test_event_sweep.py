"""The sweep: every joule is accounted once, by arithmetic that is written out here."""

from itertools import pairwise

import numpy as np
import pytest

from joulecast.accounting import sweep
from joulecast.accounting.events import Events, Place, innermost
from joulecast.errors import InputError
from joulecast.metering.energy_curve import EnergyCurve

EXACT = 1e-9


def curve_of(*points: tuple[float, float]) -> EnergyCurve:
    """Joules over time through points (second, joules)."""
    time_s, energy_j = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    return EnergyCurve(time_s, energy_j, np.zeros(len(time_s)))


TEN_WATTS = curve_of((0, 0), (10, 100))


def swept(events, curve=TEN_WATTS, window_s=(0.0, 10.0)):
    starts, ends = np.array(events, dtype=float).reshape(-1, 2).T
    return sweep(starts, ends, [curve], window_s)


@pytest.mark.parametrize(
    ("events", "joules", "idle_j"),
    [
        pytest.param([(0, 2), (2, 5)], [20, 30], 50, id="one after the other"),
        # 0-2 one event, 2-4 two, 4-6 three, 6-8 two, 8-10 one
        pytest.param(
            [(0, 6), (2, 8), (4, 10)], [20 + 10 + 20 / 3, 10 + 20 / 3 + 10, 20 / 3 + 10 + 20], 0, id="concurrent"
        ),
        pytest.param([(0, 10), (4, 6)], [90, 10], 0, id="nested"),
        # SMARAGDINE's code gives two concurrent events of a name the share of one.
        pytest.param([(0, 10)] * 3, [100 / 3] * 3, 0, id="side by side"),
        pytest.param([(5, 9), (1, 4), (3, 6), (0, 1)], [35, 25, 20, 10], 10, id="in any order"),
        pytest.param([(3, 3), (3, 4)], [0, 10], 90, id="of no length"),
        pytest.param([(-5, 3), (8, 20), (30, 40)], [30, 20, 0], 50, id="outside of the window"),
        pytest.param([], [], 100, id="none"),
    ],
)
def test_events_share_ten_watts_equally(events, joules, idle_j):
    found = swept(events)
    assert found.energy_j[0] == pytest.approx(joules, abs=EXACT)
    assert (found.idle_j[0], found.idle_s) == (pytest.approx(idle_j, abs=EXACT), pytest.approx(idle_j / 10, abs=EXACT))
    assert found.time_s == pytest.approx(np.array(joules) / 10, abs=EXACT)


def test_before_the_first_and_after_the_last_reading_power_is_unknown_and_not_zero():
    found = swept([(0, 4), (8, 10)], curve_of((1, 0), (9, 80)))
    assert found.energy_j[0] == pytest.approx([30, 10], abs=EXACT)
    assert found.unknown_s[0] == pytest.approx([1, 1], abs=EXACT)


@pytest.mark.parametrize("seed", range(5))
def test_every_joule_is_accounted_once_as_by_a_slow_sweep_that_is_written_out(seed):
    """The paper's algorithm keeps only the last slice of an event; this one adds up all of them."""
    rng = np.random.default_rng(seed)
    starts = rng.uniform(-1, 11, 60)
    ends = starts + rng.exponential(1, 60) * rng.integers(0, 2, 60)
    times = np.sort(rng.uniform(0, 10, 30))
    curve = EnergyCurve(times, np.concatenate([[0], np.cumsum(rng.uniform(0, 300, 29))]), np.zeros(30))
    found = sweep(starts, ends, [curve], (0.0, 10.0))
    assert found.energy_j.sum() + found.idle_j.sum() == pytest.approx(curve.energy_j[-1], rel=EXACT)
    assert found.time_s.sum() + found.idle_s == pytest.approx(10, rel=EXACT)
    outside_s = times[0] + 10 - times[-1]
    assert found.unknown_s.sum() + found.idle_unknown_s.sum() == pytest.approx(outside_s, rel=EXACT)
    expected = np.zeros(60)
    for left, right in pairwise(sorted({*starts, *ends, *times})):
        joules = np.interp(right, times, curve.energy_j) - np.interp(left, times, curve.energy_j)
        active = (starts <= left) & (right <= ends)
        expected[active] += joules / max(1, active.sum())
    assert found.energy_j[0] == pytest.approx(expected, abs=1e-7)
    assert sweep(np.empty(0), np.empty(0)).idle_s == 0.0


@pytest.mark.parametrize(
    ("events", "pieces"),
    [
        # start, end, lane; and start, end, owner
        pytest.param([(0, 10, 0), (4, 6, 0)], [(0, 4, 0), (4, 6, 1), (6, 10, 0)], id="nested"),
        pytest.param([(0, 3, 0), (0, 1, 0), (2, 3, 0)], [(0, 1, 1), (1, 2, 0), (2, 3, 2)], id="together"),
        pytest.param([(0, 3, 0), (1, 2, 1)], [(0, 3, 0), (1, 2, 1)], id="threads do not nest in each other"),
        pytest.param([(1, 1, 0)], [], id="nothing"),
    ],
)
def test_innermost_pieces_by_hand(events, pieces):
    starts, ends, lanes = np.array(events).T
    assert sorted(zip(*innermost(starts.astype(float), ends.astype(float), lanes), strict=True)) == pieces


@pytest.mark.parametrize("end_s", [1.9, float("nan")])
def test_an_event_that_ends_before_it_starts_is_refused(end_s):
    first = np.zeros(2, dtype=int)
    with pytest.raises(InputError, match="an event ends before it starts") as caught:
        Events(np.array([0.0, 2.0]), np.array([1.0, end_s]), first, first, (Place("", "forward", "aten::relu"),))
    assert "event 1: 2.0 to" in str(caught.value)
