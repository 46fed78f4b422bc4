"""Operations have the precision that they really run in: half modules, mixed and quantized ones, in autocast."""

import re
from pathlib import Path

import pytest
import torch
from modules import module
from torch import nn
from torch.utils._pytree import tree_map

import joulecast
from joulecast import Operation
from joulecast.extraction import network_of
from joulecast.extraction.autocast import FULL_PRECISION, FULL_PRECISION_RESULT, LOWER_PRECISION, WIDEST_PRECISION


def precisions(network) -> list[tuple[str, str]]:
    return [(entry.operation.kind, entry.operation.precision) for entry in network]


UPCAST = module(lambda self, x: x.float().exp())
# Half layers around a normalization in fp32, as large language models have them.
MIXED = module(
    lambda self, x: self.inner(self.norm(self.inner(x).float()).bfloat16()),
    inner=nn.Linear(8, 8).bfloat16(),
    norm=nn.LayerNorm(8),
)
DOUBLE = nn.Sequential(nn.Linear(8, 8).double(), nn.ReLU(), module(lambda self, x: torch.relu(x.float())))


@pytest.mark.parametrize(
    ("model", "x", "precision", "expected"),
    [
        (
            *(MIXED, torch.empty((2, 8), dtype=torch.bfloat16), "default"),
            [("linear", "bf16"), ("copy", "fp32"), ("layer_norm", "fp32"), ("copy", "bf16")],
        ),
        (DOUBLE, (2, 8), "default", [("linear", "fp64"), ("relu", "fp64"), ("copy", "fp32"), ("relu", "fp32")]),
        (UPCAST, (2, 8), "bf16", [("copy", "fp32"), ("exp", "fp32")]),
    ],
    ids=["mixed", "double", "upcast"],
)
def test_operations_run_in_the_types_of_their_tensors(model, x, precision, expected):
    network = network_of(model, x, precision=precision)
    assert precisions(network) == expected
    assert network.dropped == ()


def test_asking_for_half_precision_and_a_region_around_are_as_a_half_module():
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    asked = network_of(layers, (2, 8), precision="fp16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ("linear", "bf16") in precisions(network_of(layers, (2, 8)))
    assert asked.entries == network_of(layers.half(), (2, 8)).entries


class Autocasts(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.device = device

    def forward(self, x):
        with torch.autocast(self.device or x.device.type, dtype=torch.float16):
            x = self.norm(self.first(self.first(x))).softmax(-1)
            with torch.autocast(self.device or x.device.type, enabled=False):
                x = self.second(x)
        return self.second(x)


# torch.autocast on a GPU, by PyTorch's list: linear in half; layer_norm and softmax in fp32. The weight of `first` is
# cast once, its inputs each time, as the cache of autocast has it.
@pytest.mark.parametrize("device", ["cuda", "cpu", None])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_regions_of_autocast(device, mode):
    entries = network_of(Autocasts(device), (2, 8), mode=mode).entries
    found = {(e.operation.kind, e.operation.precision, e.operation.input_shapes[0]): e.count for e in entries}
    found = {key: count for key, count in found.items() if key[0] != "gradient_accumulation"}
    assert found == {
        ("copy", "fp16", (2, 8)): 1,  # The input of the first layer; the second gets half precision.
        ("copy", "fp16", (8, 8)): 1,
        ("copy", "fp16", (8,)): 1,
        ("linear", "fp16", (2, 8)): 2,
        ("copy", "fp32", (2, 8)): 1,
        ("layer_norm", "fp32", (2, 8)): 1,
        ("softmax", "fp32", (2, 8)): 1,
        ("linear", "fp32", (2, 8)): 2,
    }


def test_autocast_is_put_back():
    before = torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__
    with pytest.raises(Exception, match="Autocasts"):
        network_of(Autocasts("cpu"), (2, 9))
    assert before == (torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16


def test_the_lists_of_autocast_are_pytorchs():
    header = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()

    def listed(macro):
        (block,) = re.findall(rf"#define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*)\n", header)
        return set(re.findall(r"_\((\w+)", block))

    assert listed("LOWER_PRECISION_FP") == LOWER_PRECISION
    assert listed("FP32") == FULL_PRECISION
    assert listed("FP32_SET_OPT_DTYPE") == FULL_PRECISION_RESULT
    assert listed("PROMOTE") == WIDEST_PRECISION


def in_autocast(function):
    """Precisions by kind of what a function of an image and its projection runs in a region of bf16."""

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return function(x, self.project(x))

    network = joulecast.extract(module(forward, project=nn.Linear(8, 8)), (8, 8))
    return {(entry.operation.kind, entry.operation.precision) for entry in network} - {("linear", "bf16")}


@pytest.mark.parametrize(
    ("function", "found"),
    [
        # Of two types, the wider one: without a cast, PyTorch refuses these.
        (lambda x, low: x[0].dot(low[0]), {("matmul", "fp32")}),
        (lambda x, low: torch.tensordot(low, x, dims=1), {("matmul", "fp32")}),
        (lambda x, low: low.scatter_add(0, torch.zeros(8, 8, dtype=torch.int64), x), {("scatter", "fp32")}),
        (lambda x, low: low.index_put((torch.arange(8),), x), {("scatter", "fp32")}),
        (lambda x, low: nn.functional.mse_loss(low, low), {("mul", "fp32")}),
        (lambda x, low: low.exp(), {("exp", "fp32")}),
    ],
)
def test_autocast_widens(function, found):
    assert in_autocast(function) == {("copy", "bf16"), ("copy", "fp32"), *found}


def test_operators_in_place_are_not_cast():
    assert in_autocast(lambda x, low: low.exp_()) == {("copy", "bf16"), ("exp", "bf16")}


@pytest.mark.parametrize(
    ("layer", "kind", "precision"),
    [
        (nn.LSTM(8, 8), "lstm", "fp16"),  # cuDNN's layers run in fp16 in regions of bf16, too.
        (nn.GRU(8, 8), "gru", "fp16"),
        (nn.RNN(8, 8), "rnn", "fp16"),
        (nn.LSTMCell(8, 8), "sigmoid", "bf16"),
        (nn.LSTMCell(8, 8), "mul", "bf16"),  # of the state of the cell, which comes in fp32
    ],
)
def test_recurrent_layers_run_in_half_precision_under_autocast(layer, kind, precision):
    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.layer(x)

    network = joulecast.extract(module(forward, layer=layer), (4, 8), mode="training")
    assert {entry.operation.precision for entry in network if entry.operation.kind == kind} == {precision}


# Quantized linear modules: torch's scaled products, and weights of a tensor type of their own.

FP8 = torch.float8_e4m3fn


def scaled_product(self, x: torch.Tensor) -> torch.Tensor:
    """As torch's float8 recipes do it: scale and cast the input, then one scaled product."""
    quantized, scales = (x / self.scale.to(x.dtype)).to(FP8), {"scale_a": self.scale, "scale_b": self.scale}
    return torch._scaled_mm(quantized, self.weight.t(), **scales, out_dtype=torch.bfloat16)


def operations(model, shape, precision):
    network = joulecast.extract(model, shape, precision=precision)
    assert not [dropped for dropped in network.dropped if dropped.work is not None]
    return {entry.operation: entry.count for entry in network}


def linear(**attributes):
    return Operation("linear", [(32, 64)], {"out_features": 128, "bias": False, **attributes}, precision="fp8")


def test_scaled_products_are_linear_layers_in_fp8():
    norm = nn.LayerNorm(64, dtype=torch.bfloat16)
    weight, scale = nn.Buffer(torch.zeros(128, 64).to(FP8)), nn.Buffer(torch.ones(()))
    layer = module(scaled_product, weight=weight, scale=scale)
    found = operations(nn.Sequential(norm, layer, nn.ReLU()), (32, 64), "default")
    assert found[linear()] == 1
    # The cast is a copy, and the rest stays in bf16.
    assert found[Operation("copy", [(32, 64)], precision="bf16")] == 1
    assert found[Operation("layer_norm", [(32, 64)], precision="bf16")] == 1
    assert found[Operation("relu", [(32, 128)], precision="bf16")] == 1
    assert [operation for operation in found if operation.precision == "fp8"] == [linear()]


class QuantizedWeight(torch.Tensor):
    """A tensor type that defines how a linear layer runs with it, as those of torchao do."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.linear.default:
            x, weight = args[:2]
            one = torch.ones((), device=x.device)
            return torch._scaled_mm(x.to(FP8), weight.inner.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        plain = tree_map(lambda value: value.inner if isinstance(value, cls) else value, (args, kwargs or {}))
        found = func(*plain[0], **plain[1])
        return cls(found) if isinstance(found, torch.Tensor) and found.dtype == FP8 else found


def test_weights_of_another_type_are_not_taken_for_bf16():
    layer = nn.Linear(64, 128, bias=False)
    weight = QuantizedWeight(torch.empty(128, 64, dtype=FP8, device="meta"))
    layer.weight = nn.Parameter(weight, requires_grad=False)
    with torch.inference_mode():
        found = operations(layer.eval(), (32, 64), "bf16")
    assert [operation for operation in found if operation.kind == "linear"] == [linear()]
