"""The first layer of a model in training: no gradient of its input."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import joulecast
from joulecast import Operation
from joulecast.extraction.models.torchvision_models import build
from joulecast.operations.network import Network
from joulecast.predictors.networks.parts import gradient_fractions
from joulecast.zoo import find_predictor

SHAPE = (2, 3, 64, 64)


@pytest.mark.parametrize("name", ["resnet18", "alexnet", "vgg11"])
def test_what_is_paid_is_what_pytorch_counts_in_training(name):
    model = build(name).train().to("meta")
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(SHAPE, device="meta")).sum().backward()
    network = joulecast.extract(name, SHAPE, mode="training")
    products = [e.operation.row.family in ("convolution", "matmul") for e in network]
    flops = np.array([e.count * e.operation.flops for e in network], dtype=float)[products]
    assert (flops * gradient_fractions(network)[products]).sum() == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert flops.sum() > counter.get_total_flops()


def test_everything_is_paid_in_inference_in_lists_and_after_an_embedding():
    training = joulecast.extract("resnet18", SHAPE, mode="training")
    assert (gradient_fractions(joulecast.extract("resnet18", SHAPE)) == 1).all()
    assert (gradient_fractions(Network.of([(e.operation, e.count) for e in training])) == 1).all()
    assert (gradient_fractions(joulecast.extract("bert_base", (2, 16), mode="training")) == 1).all()


def test_a_first_layer_that_runs_again_is_cut_once():
    layer = Operation("linear", [(8, 64)], {"out_features": 64, "bias": True}, mode="training")
    relu = Operation("relu", [(8, 64)], mode="training")
    network = replace(Network.of([(relu, 1), (layer, 4)]), input_shape=(8, 64))
    assert gradient_fractions(network).tolist() == pytest.approx([1, 1 - 1 / 12])


@pytest.mark.parametrize("gpu", ["A30", "T4"])
def test_device_time_and_energy_of_the_first_layer_are_cut_at_every_clock(gpu):
    model = joulecast.extract("resnet18", (32, 3, 224, 224), mode="training", precision="fp32")
    whole = replace(model, input_shape=None)
    predictor = find_predictor(gpu, "training")
    for clock in (None, 600.0):
        cut, all_of_it = (predictor.predict(network, clock, power_limit_w=None) for network in (model, whole))
        assert cut.time_s < all_of_it.time_s
        assert cut.energy_j < all_of_it.energy_j
        # Under the cap, the clock of the network changes a little as well.
        first, same = (p.operations[0].device_time_s for p in (cut, all_of_it))
        assert first == pytest.approx(2 / 3 * same, rel=0.02)
        assert cut.operations[3].device_time_s == pytest.approx(all_of_it.operations[3].device_time_s, rel=0.02)
