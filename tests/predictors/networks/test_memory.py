"""The memory that a job needs, against what autograd keeps on the meta device, and against arithmetic."""

import pytest
import torch
from modules import kept_bytes, module
from torch.utils.checkpoint import checkpoint

import joulecast
from joulecast import Operation
from joulecast.extraction.models.named_models import build
from joulecast.extraction.models.transformers_models import build_to_run
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


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("bert_base", {"hidden_size": 128, "intermediate_size": 512, "attention_probs_dropout_prob": 0.0}),
        ("gpt2", {"hidden_size": 128, "attn_pdrop": 0.0}),
        ("llama3_8b", {"hidden_size": 128, "intermediate_size": 512, "num_key_value_heads": 4}),
    ],
)
def test_training_of_transformers_keeps_about_what_autograd_keeps(name, sizes):
    # On the CPU, whose attention keeps no matrix, as on GPUs. Its dropout keeps four bytes per element, on GPUs one.
    sizes |= {"num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100, "use_cache": False}
    model = build_to_run(name, **sizes)
    network = joulecast.extract(model, (4, 128), mode="training")
    assert saved_bytes(network) == pytest.approx(kept_bytes(model, torch.zeros(4, 128, dtype=torch.int64)), rel=0.15)


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("dropout", {}, 5 * 4 * 6),  # a mask of one byte per element
        ("mul", {"gradients": "all"}, 4 * 5 * 4 * 6),
        ("pow", {}, 0),  # by a number: its base is the output of what was before
        ("mul", {"gradients": "first"}, 0),  # rotary positions: only their angles are kept, which need no gradient
        # Four gates, the hidden and the cell state of both layers.
        ("lstm", {"hidden_size": 8, "num_layers": 2}, 4 * 5 * 4 * 2 * 8 * (4 + 2)),
        ("gru", {"hidden_size": 8, "bidirectional": True}, 4 * 5 * 4 * 2 * 8 * (3 + 1)),
        ("max_pool2d", {"kernel_size": 2}, (4 + 8) * 5 * 2 * 3),
    ],
)
def test_each_kind_keeps_what_its_backward_needs(kind, attributes, expected):
    shapes = [(1, 5, 4, 6)] if kind == "max_pool2d" else [(5, 4, 6)] * (2 if kind == "mul" else 1)
    operation = Operation(kind, shapes, attributes, mode="training", precision="fp32")
    assert operation.row.saved(operation) == expected


def checkpointed(reentrant: bool | None) -> torch.nn.Module:
    """Four blocks with an input in common, as the rotary positions of a language model."""

    def forward(self, x):
        common = x.tanh()
        for block in self.blocks:
            run = lambda x, common, block=block: block(x) + common  # noqa: E731
            x = run(x, common) if reentrant is None else checkpoint(run, x, common, use_reentrant=reentrant)
        return x

    def block():
        return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))

    return module(forward, blocks=torch.nn.ModuleList(block() for _ in range(4)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_keep_their_inputs_once_and_one_of_them_its_activations(reentrant):
    tensor = 512 * 64 * 4
    # The inputs of four blocks and what they have in common; within one block at a time, two of four times their width.
    expected = (4 + 1) * tensor + 2 * 4 * tensor
    network = joulecast.extract(checkpointed(reentrant), (512, 64), mode="training")
    assert sum(e.count for e in network if e.operation.kind == "checkpoint") == 4
    assert expected <= saved_bytes(network) <= 1.2 * expected
    plain = joulecast.extract(checkpointed(None), (512, 64), mode="training")
    assert saved_bytes(plain) == pytest.approx(kept_bytes(checkpointed(None).to("meta"), (512, 64)), rel=0.1)


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
    # Those behind a learned layer are needed: the gradients of their inputs are products with them.
    adapted = Autocast()
    adapted.layers[1:].requires_grad_(False)
    assert 2 * elements < memory_need(joulecast.extract(adapted, (128, 8192), **options)).activations_bytes
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
