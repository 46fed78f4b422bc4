"""How a network is run: eager by fast and slow hosts, as a CUDA graph, at any clock; alone and among others."""

import numpy as np
import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.chip import ChipPart
from joulecast.predictors.networks.predictor import AtClock, at_clock
from joulecast.predictors.networks.prepared import over_gpus
from joulecast.predictors.physics.energy import static_power_w
from joulecast.queries.evaluation import clock_grid_mhz
from joulecast.zoo import find_predictor

SMALL, LARGE = (1, 3, 224, 224), (64, 3, 224, 224)


def predicted(shape, **how):
    return joulecast.predict("resnet18", shape, "A30", **how)


def test_a_host_of_half_the_factor_takes_half_the_time_to_launch():
    reference, fast, slow = predicted(SMALL), predicted(SMALL, host=0.5), predicted(SMALL, host=2.0)
    assert fast.host_time_s == pytest.approx(0.5 * reference.host_time_s, rel=1e-12)
    assert slow.host_time_s == pytest.approx(2 * reference.host_time_s, rel=1e-12)
    assert fast.time_s < reference.time_s < slow.time_s
    # While the GPU waits, it draws static power.
    assert fast.energy_j < reference.energy_j < slow.energy_j
    assert any("the host decides the time" in note for note in slow.notes)
    # Where the device decides, the host hardly matters.
    large = predicted(LARGE)
    assert predicted(LARGE, host=0.5).time_s == pytest.approx(large.time_s, rel=0.02)
    assert not any("host decides" in note for note in large.notes)


@pytest.mark.parametrize(("gpu", "usual"), [("A30", "reference"), ("H100 SXM", "h100-server")])
def test_the_host_that_is_usual_for_the_gpu_launches_where_none_is_named(gpu, usual):
    by_default, named = (joulecast.predict("resnet18", SMALL, gpu, host=host) for host in (None, usual))
    assert (by_default.time_s, by_default.energy_j, by_default.host) == (named.time_s, named.energy_j, usual)
    assert any(f"taken to be {usual}" in note for note in by_default.notes)
    assert not any("taken to be" in note for note in named.notes)
    # Errors are known of networks on whatever host they ran on.
    assert by_default.interval() is not None


# 20 convolutions and normalizations, 17 ReLUs, 8 additions, 2 poolings and a linear layer; in training also 8 additions
# of gradients where a block's input goes two ways.
@pytest.mark.parametrize(("mode", "calls"), [("inference", 68), ("training", 76)])
def test_a_graph_has_one_launch_and_the_kernels_of_an_eager_run(mode, calls):
    eager, graph = predicted(SMALL, mode=mode), predicted(SMALL, mode=mode, execution="graph")
    assert sum(cost.count for cost in graph.operations) == calls
    assert graph.host_time_s == 10e-6
    assert graph.device_time_s == eager.device_time_s
    assert graph.time_s < eager.time_s
    assert graph.execution == "graph"
    assert graph.to_dict()["execution"] == "graph"


def test_intervals_of_eager_runs_are_not_claimed_for_other_hosts_where_they_decide():
    assert predicted(SMALL).interval() is not None
    views = [predicted(SMALL, **how)._repr_html_() for how in ({}, {"host": 0.3})]
    assert ["90 % interval" in view for view in views] == [True, False]
    assert predicted(SMALL, host=0.3).interval() is None
    # Errors were made by the other composition.
    assert joulecast.predict("resnet18", SMALL, "T4", composition="sum").interval() is None
    assert predicted(LARGE, execution="graph").interval() is not None


# 20 convolutions and the linear layer remain. The other operations share 20 kernels, one after each convolution. In
# training, the additions of gradients take two more. A backward is two kernels for each of these.
@pytest.mark.parametrize(("mode", "left", "kernels"), [("inference", 41, 1), ("training", 43, 3)])
def test_compiled_code_launches_what_is_left_of_the_kernels(mode, left, kernels):
    eager, compiled = predicted(SMALL, mode=mode), predicted(SMALL, mode=mode, execution="compiled", host=0.5)
    # The reference host takes 50 us for a call and 8 us for each kernel; this one takes half as long.
    assert compiled.host_time_s == pytest.approx(0.5 * (50e-6 + kernels * left * 8e-6), rel=1e-9)
    assert compiled.time_s < eager.time_s
    assert compiled.execution == "compiled"
    assert compiled.interval() is None
    assert "no interval: no compiled network was measured, so its error is not known" in compiled.notes


def test_compiling_takes_less_off_products_than_off_what_moves_bytes():
    eager, compiled = predicted(LARGE), predicted(LARGE, execution="compiled")
    of_kinds = {}
    for before, after in zip(eager.operations, compiled.operations, strict=True):
        assert after.device_time_s <= before.device_time_s * (1 + 1e-9)
        of_kinds.setdefault(before.operation.kind, []).append(after.device_time_s / before.device_time_s)
    assert min(of_kinds["conv2d"]) > 0.97  # The clock under the cap may differ a little.
    # relu reads and writes what the norm before it wrote: in one kernel, two of four passes are left.
    assert max(of_kinds["relu"]) < 0.75
    assert sum(cost.energy_j for cost in compiled.operations) == pytest.approx(compiled.energy_j, rel=1e-9)


# What was prepared gives at every clock what its operations do there, also among others and again.


def settled(predictor, there, counts, clock, cap_w):
    """Time, energy and device times of a network at the clock that it holds, by trying every tenth of a MHz."""
    gpu = there.work.gpu
    static = there.static_power_w / static_power_w(gpu, clock)
    host_s = predictor.host.total_s(counts, there)
    for held in np.append(clock, np.arange(clock, gpu.min_clock_mhz, -0.1)):
        device_s, dynamic_j = there.work.at(held)
        time_s = (float(counts @ device_s) ** 4 + host_s**4) ** 0.25
        energy_j = float(counts @ dynamic_j) + static * static_power_w(gpu, held) * time_s
        if energy_j <= cap_w * time_s or cap_w >= there.work.cap_w:
            return time_s, min(energy_j, cap_w * time_s), counts * device_s
    raise AssertionError("no clock is low enough")


@pytest.mark.parametrize(
    ("gpu", "cap_w", "precision"),
    [
        ("A30", None, "default"),
        ("A30", 120.0, "default"),
        ("A30", None, "fp16"),
        ("T4", None, "fp16"),
        ("T4", 62.0, "fp32"),
    ],
)
def test_every_clock_is_as_if_its_operations_were_predicted_there(gpu, cap_w, precision):
    # There is no fp32 product in the list, because networks take off what the cap costs it in a loop.
    network = joulecast.extract("squeezenet1_0", (32, 3, 224, 224), precision=precision)
    predictor, counts = find_predictor(gpu, "inference"), np.array([entry.count for entry in network], dtype=float)
    prepared = predictor.prepared(network, cap_w)
    default = float(find_gpu(gpu).boost_clock_mhz)
    for clock in (default, 700.25, default, 1111.5):
        found = at_clock(prepared, clock).prediction()
        there = predictor.operations.predict(network.operations, clock, found.power_limit_w)
        there = predictor.operations.in_network(there)
        time_s, energy_j, device_s = settled(predictor, there, counts, clock, found.power_limit_w)
        assert (found.clock_mhz, cap_w in (None, found.power_limit_w)) == (clock, True)
        assert (found.time_s, found.energy_j) == pytest.approx((time_s, energy_j), rel=3e-4)
        assert [cost.source for cost in found.operations] == list(there.source)
        assert [cost.device_time_s for cost in found.operations] == pytest.approx(device_s.tolist(), rel=3e-4)
        assert predictor.predict(network, clock, cap_w).to_dict() == found.to_dict()


def test_products_of_a_network_pay_for_the_cap_once():
    """In a loop, the cap makes an fp32 product slower. In a network the common clock falls instead."""
    predictor = find_predictor("T4", "inference").operations
    operations = [
        joulecast.Operation("linear", [(8192, 4096)], {"out_features": 4096}),
        joulecast.Operation("matmul", [(64, 512, 512), (64, 512, 512)]),
        joulecast.Operation("relu", [(8192, 4096)]),
    ]
    alone, inside = predictor.predict(operations), predictor.predict_for_network(operations, 70.0)
    assert (inside.device_time_s[:2] < 0.9 * alone.device_time_s[:2]).all()
    assert inside.device_time_s[2] == pytest.approx(alone.device_time_s[2])


GPUS = ("A30", "T4", "H100 SXM", "A100 PCIe 40GB", "MI300X", "RTX 2080 Ti")


def asked(mode="inference", cap=1.0, precision="default"):
    """The network on each GPU, the further down the list the fewer clocks."""
    network = joulecast.extract("resnet18", (32, 3, 128, 128), mode=mode, precision=precision)
    for place, name in enumerate(GPUS):
        gpu = find_gpu(name)
        cap_w = None if gpu.power_range_w is None else max(gpu.power_range_w[0], cap * gpu.power_limit_w)
        yield find_predictor(gpu, mode).prepared(network, cap_w), clock_grid_mhz(gpu)[:: place + 1]


@pytest.mark.parametrize(
    ("mode", "cap", "precision"),
    [("inference", 1.0, "default"), ("inference", 0.6, "fp16"), ("training", 0.8, "default")],
)
def test_together_as_each_alone(mode, cap, precision):
    together = over_gpus([*asked(mode, cap, precision)])
    assert [over.prepared.knowledge.operations.gpu.aliases[0] for over in together] == list(GPUS)
    for over, (prepared, clocks) in zip(together, asked(mode, cap, precision), strict=True):
        assert over.clocks_mhz.tolist() == clocks.tolist()
        for place in (0, len(clocks) // 2, len(clocks) - 1):
            one = at_clock(prepared, float(clocks[place])).prediction()
            found = (over.time_s[place], over.energy_j[place], over.held_clocks_mhz[place], over.device_time_s[place])
            alone = (one.time_s, one.energy_j, one.held_clock_mhz, one.device_time_s)
            assert found == pytest.approx(alone, rel=1e-9)
            there = AtClock(over, place)
            interval = there.interval(0.9)
            assert (tuple(there.notes()), interval is not None) == (one.notes, one.supports(0.9))
            if interval is not None:
                assert interval.energy_j == pytest.approx(one.interval(0.9).energy_j, rel=1e-9)


SHAPE = (2, 3, 99, 99)


def test_regressors_are_asked_once_for_an_operation(monkeypatch):
    joulecast.predict("resnet18", (1, 3, 64, 64), "A30")  # loads the predictor, which makes its golden prediction
    joulecast.predict("resnet18", (1, 3, 64, 64), "A30", predictor="xgboost")
    asked, learn = [], ChipPart._learned_loops

    def noted(self, operations, *rest):
        asked.append(len(operations))
        return learn(self, operations, *rest)

    monkeypatch.setattr(ChipPart, "_learned_loops", noted)
    once = joulecast.predict("resnet18", SHAPE, "A30")
    assert len(asked) == 1
    assert joulecast.predict("resnet18", SHAPE, "A30") == once
    assert joulecast.predict("resnet18", SHAPE, "A30", 900).time_s > once.time_s
    assert len(asked) == 1
    joulecast.predict("resnet18", SHAPE, "A30", power_limit_w=120)
    assert len(asked) == 1
    joulecast.predict("resnet34", SHAPE, "A30")  # the same layers, more often
    assert len(asked) == 1
    joulecast.predict("resnet18", SHAPE, "A30", predictor="xgboost")
    assert len(asked) == 2
