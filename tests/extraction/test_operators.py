"""Operators that real models run beside layers: each becomes the operation that it is, and none is dropped."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from modules import module
from torch import nn
from torch.nn import functional as F  # noqa: N812 (everybody calls it so)

import joulecast

IMAGE = (2, 8, 16, 16)


def operations(function: Callable[..., Any], shape=IMAGE, **options):
    """The operations of a function of an input and of a tensor of indices."""
    places = nn.Buffer(torch.tensor([0, 1, 1]))
    network = joulecast.extract(module(lambda self, x: function(x, self.places), places=places), shape, **options)
    assert not network.dropped
    return {entry.operation.kind: entry.operation for entry in network}


@pytest.mark.parametrize(
    ("function", "kind", "shapes", "attributes"),
    [
        (lambda x, i: x.gather(1, (x > 0).long()), "gather", (IMAGE, IMAGE), {"dim": 1}),
        (lambda x, i: x.index_select(1, i), "index_select", (IMAGE, (3,)), {"dim": 1}),
        (lambda x, i: x.index_add(1, i, x[:, :3]), "scatter", (IMAGE, (3, 512), (3,)), {"accumulate": True}),
        (lambda x, i: x.index_copy(1, i, x[:, :3]), "scatter", (IMAGE, (3, 512), (3,)), {"accumulate": False}),
        (lambda x, i: x.index_put((i, i), x[0, :1]), "scatter", (IMAGE, (3, 256), (3,)), {"accumulate": False}),
        (lambda x, i: x.masked_fill(x[:, :1] > 0, 0.0), "masked_fill", (IMAGE, (2, 1, 16, 16)), {}),
        (lambda x, i: torch.where(x > 0, x, 0.0), "where", (IMAGE, IMAGE), {}),
        (lambda x, i: x > x[0], "compare", (IMAGE, (8, 16, 16)), {}),
        (lambda x, i: x.argsort(1), "sort", (IMAGE,), {"dim": 1}),
        (lambda x, i: x.topk(3, 1)[0], "topk", (IMAGE,), {"k": 3, "dim": 1}),
        (lambda x, i: x.cumprod(2), "cumsum", (IMAGE,), {"dim": 2}),
        (lambda x, i: x.max(0)[0], "max", (IMAGE,), {"dim": 0, "keepdim": False}),
        (lambda x, i: x.min(), "max", (IMAGE,), {"dim": None, "keepdim": False}),
        (lambda x, i: x.argmin(0, keepdim=True), "argmax", (IMAGE,), {"dim": 0, "keepdim": True}),
        (lambda x, i: x.std((2, 3)), "var", (IMAGE,), {"dim": (2, 3), "keepdim": False}),
        (lambda x, i: x.prod(0), "prod", (IMAGE,), {"dim": 0, "keepdim": False}),
        (lambda x, i: F.one_hot(i, 10) * x[0, 0, 0, 0], "one_hot", ((3,),), {"num_classes": 10}),
        (lambda x, i: F.grid_sample(x, x[:, :5, :6, :2], mode="nearest", align_corners=False), "grid_sample",
         (IMAGE, (2, 5, 6, 2)), {"mode": "nearest"}),
        (lambda x, i: F.interpolate(x, scale_factor=2, mode="bilinear"), "interpolate", (IMAGE,),
         {"output_size": 32, "mode": "linear"}),
        (lambda x, i: F.interpolate(x, size=(8, 4), mode="nearest-exact"), "interpolate", (IMAGE,),
         {"output_size": (8, 4), "mode": "nearest"}),
        (lambda x, i: torch.fft.rfft2(x), "fft", (IMAGE,), {"dim": (2, 3), "form": "r2c", "last_size": None}),
        (lambda x, i: torch.cdist(x, x[:, :, :5], p=1), "cdist", (IMAGE, (2, 8, 5, 16)), {"p": 1.0}),
        (lambda x, i: x[0, 0] @ x[0, 0, 0], "matmul", ((16, 16), (16, 1)), {}),
        (lambda x, i: x * torch.rand_like(x), "random", (IMAGE,), {}),
        (lambda x, i: x * torch.empty_like(x).uniform_(-1, 1), "random", (IMAGE,), {}),
        (lambda x, i: x * torch.empty_like(x).bernoulli_(0.9), "random", (IMAGE,), {}),
    ],
)  # fmt: skip
def test_each_operator_becomes_its_operation(function, kind, shapes, attributes):
    operation = operations(function)[kind]
    assert operation.input_shapes == shapes
    assert {name: value for name, value in operation.attributes.items() if name != "gradients"} == attributes


def test_in_place_nothing_is_copied_first():
    def changed(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = x * 2
        x[places] = 0.0
        return x

    assert "copy" not in operations(changed)
    assert "copy" in operations(lambda x, i: x.index_fill(0, i, 0.0))


def test_complex_numbers_are_pairs():
    def rotated(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (8, 2)))
        return torch.view_as_real(pairs * pairs[0] + pairs * 2.0)

    found = operations(rotated)
    assert found["complex_mul"].input_shapes == ((2, 8, 16, 8, 2), (8, 16, 8, 2))
    assert found["complex_mul"].precision == "fp32"
    assert found["mul"].input_shapes == ((2, 8, 16, 8, 2),)
    assert found["complex_mul"].flops == 6 * 2 * 8 * 16 * 8


COMPLEX = torch.zeros(3, 4, 4, dtype=torch.complex64)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x,
        lambda x: x[0] @ x[1],
        lambda x: x[0] @ x[1, 0],
        lambda x: torch.einsum("bij,bjk->bik", x, x),
        lambda x: F.linear(x, x[0], x[0, 0]),
        lambda x: torch.addmm(x[0], x[1], x[2]),
    ],
)
def test_a_product_of_complex_numbers_is_four_of_real_ones(function):
    def of(tensor):
        network = joulecast.extract(module(lambda self, x: function(self.x + x), x=nn.Buffer(tensor)), (1,))
        return sum(each.count * each.operation.flops for each in network if each.operation.row.family == "matmul")

    assert of(COMPLEX) == 4 * of(COMPLEX.real.clone()) > 0


def test_complex_convolutions_are_three_of_real_numbers():
    layer = module(lambda self, x: self.layer(torch.complex(x, x)), layer=nn.Conv2d(4, 6, 3, dtype=torch.complex64))
    found = joulecast.extract(layer, (2, 4, 8, 8))
    real = joulecast.extract(nn.Conv2d(4, 6, 3), (2, 4, 8, 8))
    convolutions = [entry for entry in found if entry.operation.kind == "conv2d"]
    assert sum(entry.count * entry.operation.flops for entry in convolutions) == 3 * real.flops


@pytest.mark.parametrize(
    ("function", "kind", "shape"),
    [
        (lambda x: torch.cat([x, x], -1), "cat", (3, 4, 8, 2)),
        (lambda x: torch.stack([x, x], -1), "cat", (3, 4, 4, 2, 2)),
        (lambda x: x.sum((0, -1)), "sum", (4, 2)),
        (lambda x: x.mean(-1, keepdim=True), "mean", (3, 4, 1, 2)),
        (lambda x: x.index_select(-1, torch.tensor([1, 0])), "index_select", (3, 4, 2, 2)),
    ],
)
def test_dimensions_of_complex_tensors_are_counted_without_their_parts(function, kind, shape):
    network = joulecast.extract(module(lambda self, x: function(self.x + x), x=nn.Buffer(COMPLEX)), (1,))
    assert [each.operation.output_shape for each in network if each.operation.kind == kind] == [shape]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(4, 6, 3), (4, 16)),
        (nn.Conv2d(4, 6, 3, groups=2), (4, 16, 16)),
        (nn.ConvTranspose3d(4, 6, 3), (4, 8, 8, 8)),
        (nn.MaxPool1d(2), (4, 16)),
        (nn.AvgPool2d(2), (4, 16, 16)),
        (nn.AdaptiveAvgPool3d(1), (4, 8, 8, 8)),
    ],
)
def test_an_image_without_a_batch_dimension_is_a_batch_of_one(layer, shape):
    def listed(shape):
        return [(entry.operation, entry.count) for entry in joulecast.extract(layer, shape, mode="training")]

    assert listed(shape) == listed((1, *shape))


def test_a_diagonal_is_a_view():
    assert set(operations(lambda x, i: x.diagonal(dim1=-2, dim2=-1) + 1)) == {"add"}


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("layer", "attributes"),
    [
        (nn.LSTM(6, 8, 2, batch_first=True), {"num_layers": 2, "proj_size": 0}),
        (nn.LSTM(6, 8, bidirectional=True, proj_size=3), {"bidirectional": True, "proj_size": 3}),
        (nn.GRU(6, 8, bias=False), {"bias": False}),
        (nn.RNN(6, 8, 3, nonlinearity="relu", dropout=0.1), {"num_layers": 3}),
    ],
)
def test_a_recurrent_layer_is_one_operation(layer, attributes, mode):
    network = joulecast.extract(layer, (4, 5, 6), mode=mode)
    (entry,) = network
    operation = entry.operation
    assert operation.kind == type(layer).__name__.lower()
    assert operation.input_shapes == ((5, 4, 6) if layer.batch_first else (4, 5, 6),)
    assert {"hidden_size": 8, **attributes}.items() <= operation.attributes.items()
    assert operation.parameters == sum(parameter.numel() for parameter in layer.parameters())
    assert operation.precision == "tf32"  # cuDNN may use TF32 unless it is forbidden.
    assert operation.replace(mode="training").flops == 3 * operation.forward_flops


def test_two_uses_of_a_recurrent_layer_add_their_gradients():
    twice = module(lambda self, x: self.layer(self.layer(x)[0])[0], layer=nn.GRU(6, 6))
    network = joulecast.extract(twice, (4, 5, 6), mode="training")
    counts = [(entry.operation.kind, entry.operation.input_shapes, entry.count) for entry in network]
    assert counts == [
        ("gru", ((4, 5, 6),), 2),
        # Two weights and two biases.
        ("gradient_accumulation", ((18, 6),), 2),
        ("gradient_accumulation", ((18,),), 2),
    ]


def test_grouped_products_and_bags_have_their_parameters():
    experts = module(
        lambda self, tokens: torch._grouped_mm(self.bag(tokens), self.weights, offs=self.ends),
        weights=nn.Parameter(torch.zeros(4, 64, 32, dtype=torch.bfloat16)),
        bag=nn.EmbeddingBag(100, 64, dtype=torch.bfloat16),
        ends=nn.Buffer(torch.tensor([32, 64, 96, 128], dtype=torch.int32)),
    )
    network = joulecast.extract(experts, torch.empty(128, 5, dtype=torch.int64))
    found = {entry.operation.kind: entry.operation for entry in network}
    assert found["grouped_linear"].input_shapes == ((128, 64),)
    assert found["grouped_linear"].parameters == 4 * 64 * 32
    assert found["grouped_linear"].flops == 2 * 128 * 64 * 32
    assert found["embedding_bag"].input_shapes == ((640,), (128,))
    assert found["embedding_bag"].parameters == 100 * 64
