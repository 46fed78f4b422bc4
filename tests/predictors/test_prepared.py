"""A prepared network gives at every clock what predicting its operations at that clock gives."""

from dataclasses import replace

import numpy as np
import pytest

import joulecast
from joulecast.errors import InputError
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.composition import compose
from joulecast.predictors.physics.energy import static_power_w
from joulecast.zoo import find_predictor


def settled(predictor, there, counts, clock, cap_w):
    """The clock that a network holds, and its operations there, by trying every tenth of a MHz."""
    gpu = there.work.gpu
    static = there.static_power_w / static_power_w(gpu, clock)
    host_s = predictor.host.total_s(counts, there)
    for held in np.append(clock, np.arange(clock, gpu.min_clock_mhz, -0.1)):
        device_s, dynamic_j = there.work.at(held)
        time_s = (float(counts @ device_s) ** 4 + host_s**4) ** 0.25
        if (
            float(counts @ dynamic_j) <= (cap_w - static * static_power_w(gpu, held)) * time_s
            or cap_w >= there.work.cap_w
        ):
            break
    return held, device_s, dynamic_j


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
    predictor = find_predictor(gpu, "inference")
    prepared = predictor.prepared(network, cap_w)
    cap = prepared.power_limit_w
    default = float(find_gpu(gpu).boost_clock_mhz)
    for clock in (default, 700.25, default, 1111.5):
        counts = np.array([entry.count for entry in network], dtype=float)
        there = predictor.operations.predict(network.operations, clock, cap)
        there = predictor.operations.in_network(there)
        held_mhz, device_s, dynamic_j = settled(predictor, there, counts, clock, cap)
        static = there.static_power_w / static_power_w(there.work.gpu, clock)
        totals = compose(
            counts,
            replace(
                there,
                device_time_s=device_s,
                dynamic_energy_j=dynamic_j,
                static_power_w=static * static_power_w(there.work.gpu, held_mhz),
            ),
            predictor.host,
            cap,
        )
        found = prepared.at(clock)
        assert (found.clock_mhz, found.power_limit_w) == (clock, cap)
        assert found.time_s == pytest.approx(totals.time_s, rel=3e-4)
        assert found.energy_j == pytest.approx(totals.energy_j, rel=3e-4)
        assert [cost.source for cost in found.operations] == list(there.source)
        assert [cost.device_time_s for cost in found.operations] == pytest.approx(
            (counts * device_s).tolist(), rel=3e-4
        )
        assert predictor.predict(network, clock, cap_w).to_dict() == found.to_dict()


def test_plain_sums_are_of_loops_at_that_clock():
    network = joulecast.extract("resnet18", (32, 3, 224, 224))
    predictor = find_predictor("A30", "inference")
    loops = predictor.operations.predict(network.operations, 900.0)
    counts = np.array([entry.count for entry in network], dtype=float)
    found = predictor.prepared(network).at(900.0, composition="sum")
    assert found.time_s == pytest.approx(float((counts * loops.time_s).sum()))


def test_refuses_as_predict_does():
    network = joulecast.extract("resnet18", (32, 3, 224, 224))
    prepared = find_predictor("A30", "inference").prepared(network)
    for wrong in ({"clock_mhz": 99.0}, {"composition": "product"}):
        with pytest.raises(InputError):
            prepared.at(**wrong)
    with pytest.raises(InputError):
        find_predictor("A30", "inference").prepared(network, 1.0)


def test_counts_of_modules_are_calls():
    """The first block of layer2 halves the image between its two ReLUs, the other three call both on the small one."""
    prediction = joulecast.predict("resnet50", (32, 3, 224, 224), "A30")
    (relu,) = [
        row
        for row in prediction.to_dict()["operations"]
        if row["kind"] == "relu" and row["input_shapes"] == [[32, 128, 28, 28]]
    ]
    assert relu["module_paths"] == [f"layer2.{block}.relu" for block in range(4)]
    assert relu["module_counts"] == [1, 2, 2, 2]
    assert relu["count"] == 7


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
