"""Quantized linear modules: torch's scaled products, and weights of a tensor type of their own."""

import torch
from torch import nn
from torch.utils._pytree import tree_map

import joulecast
from joulecast import Operation

FP8 = torch.float8_e4m3fn


class Float8Linear(nn.Module):
    """As torch's float8 recipes do it: scale and cast the input, then one scaled product."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(outputs, features).to(FP8))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        quantized = (x / self.scale.to(x.dtype)).to(FP8)
        return torch._scaled_mm(
            quantized, self.weight.t(), scale_a=self.scale, scale_b=self.scale, out_dtype=torch.bfloat16
        )


def operations(module, shape, precision):
    network = joulecast.extract(module, shape, precision=precision)
    assert not [dropped for dropped in network.dropped if dropped.work is not None]
    return {entry.operation: entry.count for entry in network}


def linear(**attributes):
    return Operation("linear", [(32, 64)], {"out_features": 128, "bias": False, **attributes}, precision="fp8")


def test_scaled_products_are_linear_layers_in_fp8():
    norm = nn.LayerNorm(64, dtype=torch.bfloat16)
    found = operations(nn.Sequential(norm, Float8Linear(64, 128), nn.ReLU()), (32, 64), "default")
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
    module = nn.Linear(64, 128, bias=False)
    weight = QuantizedWeight(torch.empty(128, 64, dtype=FP8, device="meta"))
    module.weight = nn.Parameter(weight, requires_grad=False)
    with torch.inference_mode():
        found = operations(module.eval(), (32, 64), "bf16")
    assert [operation for operation in found if operation.kind == "linear"] == [linear()]
