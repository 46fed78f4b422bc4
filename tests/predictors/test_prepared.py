"""A prepared network gives at every clock what predicting its operations there gives, also among others and again."""

import numpy as np
import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.chip import ChipPart
from joulecast.predictors.networks.prepared import over_clocks, over_gpus
from joulecast.predictors.physics.energy import static_power_w
from joulecast.queries.evaluation import clock_grid_mhz
from joulecast.zoo import find_predictor


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
        found = prepared.at(clock)
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
    assert [over.knowledge.operations.gpu.aliases[0] for over in together] == list(GPUS)
    for over, (prepared, clocks) in zip(together, asked(mode, cap, precision), strict=True):
        alone = over_clocks(prepared, clocks)
        assert over.clocks_mhz.tolist() == clocks.tolist()
        for name in ("time_s", "energy_j", "device_time_s", "held_clocks_mhz", "shared_mhz"):
            assert getattr(over, name) == pytest.approx(getattr(alone, name), rel=1e-12)
        one = prepared.at(float(clocks[-1]))
        assert (over.time_s[-1], over.energy_j[-1]) == pytest.approx((one.time_s, one.energy_j), rel=1e-9)


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
