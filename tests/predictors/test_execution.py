"""How a network is run: eager by fast and slow hosts, and as a CUDA graph; against arithmetic by hand."""

from __future__ import annotations

import pytest

import joulecast
from joulecast.errors import UnknownNameError
from joulecast.predictors.networks.execution import GAP_S, GRAPH_LAUNCH_S

SMALL, LARGE = (1, 3, 224, 224), (64, 3, 224, 224)


def predicted(shape, **how):
    return joulecast.predict("resnet18", shape, "A30", **how)


def test_a_host_of_half_the_factor_takes_half_the_time_to_launch():
    reference, fast, slow = predicted(SMALL), predicted(SMALL, host=0.5), predicted(SMALL, host=2.0)
    assert fast.host_time_s == pytest.approx(0.5 * reference.host_time_s, rel=1e-12)
    assert slow.host_time_s == pytest.approx(2 * reference.host_time_s, rel=1e-12)
    assert fast.time_s < reference.time_s < slow.time_s
    # While it waits the GPU draws its static power.
    assert fast.energy_j < reference.energy_j < slow.energy_j
    assert any("the host decides the time" in note for note in slow.notes)


def test_where_the_device_decides_the_host_hardly_matters():
    assert predicted(LARGE, host=0.5).time_s == pytest.approx(predicted(LARGE).time_s, rel=0.02)
    assert not any("host decides" in note for note in predicted(LARGE).notes)


@pytest.mark.parametrize(("mode", "kernels"), [("inference", 1), ("training", 3)])
def test_a_graph_has_one_launch_and_gaps_between_kernels(mode, kernels):
    eager, graph = predicted(SMALL, mode=mode), predicted(SMALL, mode=mode, execution="graph")
    calls = sum(cost.count for cost in graph.operations)
    assert graph.host_time_s == GRAPH_LAUNCH_S
    assert graph.device_time_s - eager.device_time_s == pytest.approx(kernels * calls * GAP_S, rel=0.05)
    assert graph.time_s < eager.time_s
    assert graph.execution == "graph"
    assert graph.to_json()["execution"] == "graph"


def test_intervals_of_eager_runs_are_not_claimed_for_other_hosts_where_they_decide():
    assert predicted(SMALL).interval() is not None
    assert predicted(SMALL, host=0.3).interval() is None
    assert predicted(LARGE, execution="graph").interval() is not None


def test_one_clock_and_many_agree():
    best = joulecast.best("resnet18", SMALL, gpus=["A30"], clocks=[900], execution="graph", host=0.7)[0]
    alone = predicted(SMALL, clock=900, execution="graph", host=0.7)
    assert (best.time_s, best.energy_j) == pytest.approx((alone.time_s, alone.energy_j), rel=1e-9)
    assert best.notes == alone.notes


def test_unknown_ways_to_run_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean graph"):
        predicted(SMALL, execution="graphs")
