"""The memory that a job needs, against what autograd keeps on the meta device, and against arithmetic."""

import pytest
import torch
from modules import kept_bytes

import joulecast
from joulecast import Operation
from joulecast.extraction.models.named_models import build
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.memory import memory_need, saved_bytes

LINEAR = Operation("linear", [(32, 1000)], {"out_features": 500, "bias": False})


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "densenet121", "convnext_tiny"])
def test_training_keeps_what_autograd_keeps(name):
    shape = (2, 3, 128, 128)
    model = build(name).to("meta")
    network = joulecast.extract(name, shape, mode="training")
    assert saved_bytes(network) == pytest.approx(kept_bytes(model, shape), rel=0.1)
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert memory_need(network).weights_bytes == pytest.approx(2 * weights, rel=1e-3)


def test_inference_is_weights_and_the_largest_operation():
    need = memory_need(joulecast.Network.of([(LINEAR, 3)]))
    assert need.weights_bytes == 3 * 1000 * 500 * 4
    assert need.activations_bytes == (32 * 1000 + 32 * 500) * 4


def test_a_module_that_is_called_twice_has_its_weights_once():
    shared = torch.nn.Linear(64, 64)
    once = joulecast.extract(torch.nn.Sequential(shared, torch.nn.ReLU()), (8, 64))
    twice = joulecast.extract(torch.nn.Sequential(shared, shared), (8, 64))
    assert memory_need(twice).weights_bytes == memory_need(once).weights_bytes == 4 * (64 * 64 + 64)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gpt2", (1, 8)),  # whose last layer has the weights of its embedding
        ("googlenet", (2, 3, 64, 64)),  # whose auxiliary classifiers run in training alone
    ],
)
def test_memory_holds_each_parameter_once(name, shape, mode):
    model = build(name)
    by_name, by_module = (memory_need(joulecast.extract(each, shape, mode=mode)) for each in (name, model))
    stored = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert by_name == by_module
    assert by_name.weights_bytes == stored * (2 if mode == "training" else 1)


class Autocast(torch.nn.Module):
    def __init__(self, frozen: int = 0):
        super().__init__()
        with torch.device("meta"):
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(8)))
        self.layers[:frozen].requires_grad_(False)

    def forward(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            return self.layers(x)


def test_autocast_holds_weights_in_both_types():
    options = {"mode": "training", "optimizer": "adamw"}
    network = joulecast.extract(Autocast(), (128, 8192), **options)
    elements = 8 * 8192 * 8192
    need = memory_need(network)
    # Weights, gradients and two moments in fp32, and a copy of all weights in bf16 until the backward.
    assert need.weights_bytes == 4 * 4 * elements
    assert need.activations_bytes > 2 * elements
    assert memory_need(joulecast.operations.network.Network.from_dict(network.to_dict())) == need
    # The weights of frozen layers are cast as well, but no backward needs those of the first seven.
    frozen = memory_need(joulecast.extract(Autocast(7), (128, 8192), **options))
    assert frozen.weights_bytes == 4 * (elements + 3 * elements // 8)
    assert 2 * elements // 8 < frozen.activations_bytes < 2 * elements
    # As inference runs it, with fp32 weights and their casts, which are cached until the region ends.
    inference = memory_need(joulecast.extract(Autocast(), (128, 8192)))
    assert inference.weights_bytes == 4 * elements
    plain = memory_need(joulecast.extract(Autocast().layers, (128, 8192), precision="bf16", **options))
    assert plain.weights_bytes == 4 * 2 * elements


def test_a_step_of_decoding_holds_the_caches_of_all_layers():
    # Llama-3-8B: 32 layers, 8 heads of 128 for keys and as many for values, in bf16.
    short, long = (
        memory_need(joulecast.extract("llama3_8b", (1, 1), precision="bf16", cache_length=length))
        for length in (1023, 2047)
    )
    grown = long.activations_bytes - short.activations_bytes
    assert grown >= 32 * 2 * 1024 * 8 * 128 * 2
    assert long.weights_bytes == pytest.approx(8.03e9 * 2, rel=0.01)
    assert not long.fits(find_gpu("T4"))
    assert long.fits(find_gpu("A30"))
