"""Many networks at once: the same totals as one after the other, and one bad candidate harms no other."""

import math
from functools import partial

import pandas as pd
import pytest

import joulecast
from joulecast.errors import InputError, UnknownNameError
from joulecast.operations.entry import Dropped, DroppedWork
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation
from joulecast.predictors.networks import many


def candidate(width: int, depth: int) -> list[tuple[Operation, int]]:
    """A small convolutional network of a search space."""
    rows = [(Operation("conv2d", [(8, 3, 32, 32)], {"out_channels": width, "kernel_size": 3, "padding": 1}), 1)]
    for _ in range(depth):
        conv = Operation("conv2d", [(8, width, 32, 32)], {"out_channels": width, "kernel_size": 3, "padding": 1})
        rows += [(conv, 1), (Operation("relu", [(8, width, 32, 32)]), 1)]
    return rows


CANDIDATES = [candidate(width, depth) for width in (16, 48, 64) for depth in (1, 4)]


TOTALS = ("time_s", "energy_j", "power_w", "edp_js", "device_time_s", "host_time_s", "held_clock_mhz")
# The sums are added up in another order than in `predict`.
SAME = partial(pytest.approx, rel=1e-12)


@pytest.mark.parametrize(
    ("gpu", "question"),
    [
        ("A30", {}),
        ("A30", {"clock": 900.0}),
        ("A30", {"power_limit_w": 90.0}),
        ("T4", {"power_limit_w": 62.0}),
        ("H100 SXM", {"execution": "graph"}),
        ("A30", {"execution": "graph", "host": 0.7, "clock": 900.0}),
        ("H100 SXM", {"execution": "compiled", "host": 0.7}),
        ("A30", {"composition": "sum"}),
        ("A30", {"predictor": "any-gpu/transformer"}),
    ],
)
def test_totals_are_those_of_predict(gpu, question):
    together = joulecast.predict_many(CANDIDATES, gpu, **question)
    alone = [joulecast.predict(each, gpu=gpu, **question) for each in CANDIDATES]
    # Products of float32 in the transformer are added up in an order that depends on how many networks are computed.
    same = partial(pytest.approx, rel=1e-6) if "predictor" in question else SAME
    for name in TOTALS:
        assert getattr(together, name).tolist() == same([getattr(each, name) for each in alone]), name
    assert (together.gpu, together.predictor) == (alone[0].gpu, alone[0].predictor)


def test_several_gpus_and_clocks_and_intervals():
    """Each row is what `predict` says of its network on its GPU at its clock, the interval included."""
    gpus, clocks = ["A30", "H100 SXM"], [900, 1200]
    found = joulecast.predict_many(CANDIDATES[:2], gpus, clocks, level=0.9)
    assert len(found) == 8
    ways = [(each, gpu, clock) for each in CANDIDATES[:2] for gpu in gpus for clock in clocks]
    for row, (network, gpu, clock) in enumerate(ways):
        alone = joulecast.predict(network, None, gpu, clock)
        assert (found.gpu[row], found.clock_mhz[row], found.power_limit_w[row]) == (
            alone.gpu,
            clock,
            alone.power_limit_w,
        )
        assert (found.predictor[row], found.energy_j[row]) == (alone.predictor, SAME(alone.energy_j))
        assert found.intervals[row] == alone.interval(0.9)
    without = joulecast.predict_many(iter(CANDIDATES[:2]), gpus, clocks)
    assert without.energy_j.tolist() == SAME(found.energy_j.tolist())
    assert without.intervals == ()
    best = min(range(8), key=lambda row: found.energy_j[row])
    assert best in found.pareto() == without.pareto()
    frame = found.to_frame()
    assert frame[["gpu", "clock_mhz"]].values.tolist()[best] == [found.gpu[best], found.clock_mhz[best]]
    assert frame["energy_j_low"][0] < frame["energy_j"][0] < frame["energy_j_high"][0]


def test_a_depthwise_convolution_costs_what_it_costs_in_its_network():
    """In training, a layer norm over the channels says that the image lies with its channels last."""
    image = (8, 96, 56, 56)
    depthwise = {"out_channels": 96, "kernel_size": 7, "padding": 3, "groups": 96}
    conv = Operation("conv2d", [image], depthwise, precision="tf32", mode="training")
    norm = Operation("layer_norm", [(8, 56, 56, 96)], {"normalized_shape": (96,)}, mode="training")
    networks = [Network.of([(conv, 3), (norm, 3)]), Network.of([(conv, 3)])]
    alone = SAME([joulecast.predict(network, None, "A30").time_s for network in networks])
    assert joulecast.predict_many(networks, "A30", mode="training").time_s.tolist() == alone
    frames = [network.to_frame().assign(network=name) for name, network in zip("ab", networks, strict=True)]
    assert joulecast.predict_many(pd.concat(frames), "A30", mode="training").time_s.tolist() == alone


def test_pieces_change_nothing(monkeypatch):
    whole = joulecast.predict_many(CANDIDATES, "A30")
    monkeypatch.setattr(many, "_AT_ONCE", 2)
    assert joulecast.predict_many(iter(CANDIDATES), "A30").energy_j.tolist() == whole.energy_j.tolist()


def test_a_network_without_a_total_says_why_and_harms_no_other():
    good, large = Network.of(CANDIDATES[0]), DroppedWork(10**12, 10**12, 0, 0, 10**12)
    lacking = Network(good.entries, dropped=(Dropped("my.operator", 1, (), "unknown", large),))
    found = joulecast.predict_many([good, lacking, good], "A30")
    assert math.isnan(found.energy_j[1])
    assert "my.operator" in found.problems[1]
    assert found.problems[0] == found.problems[2] == ""
    assert found.energy_j[0] == found.energy_j[2] == SAME(joulecast.predict(good, gpu="A30").energy_j)


def test_questions_that_no_network_can_answer_are_refused_at_once():
    for error, networks, gpu, question, says in (
        (UnknownNameError, CANDIDATES, "A31", {}, "A31"),
        (InputError, CANDIDATES, "A30", {"clock": 99999.0}, "99999"),
        (InputError, CANDIDATES, "A30", {"composition": "product"}, "product"),
        (InputError, CANDIDATES, [], {}, "at least one"),
        (InputError, CANDIDATES, "A30", {"level": 1.5}, "level"),
        (InputError, [candidate(16, 1), 7], "A30", {}, "not a model"),
    ):
        with pytest.raises(error, match=says):
            joulecast.predict_many(networks, gpu, **question)
