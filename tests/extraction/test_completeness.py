"""Nothing is lost without a warning: an independent trace of operators against what extraction lists.

The trace knows no table of operators. It breaks down whatever PyTorch lets it, but for the few below, and asks of each
operator that is left whether it moved memory: whether a result lies elsewhere than the arguments, or overwrites one.
"""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from joulecast.extraction import network_of
from joulecast.extraction.models.named_models import build
from joulecast.extraction.operators import FREE

# Operators that run as one kernel, or a few that belong together, though PyTorch can break them down.
WHOLE = {
    **{name: name for name in ("conv1d", "conv2d", "linear", "batch_norm", "layer_norm", "group_norm", "softmax")},
    **{name: name for name in ("dropout", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "relu6", "hardswish")},
    **{name: name for name in ("hardsigmoid", "silu", "embedding")},
    "addmm": "linear",
    "scaled_dot_product_attention": "attention",
    "upsample_bilinear2d": "interpolate",
    "stack": "cat",
    "roll": "copy",
    "index": "copy",
}
# Primitive operators -> kind; others are named as they are.
KINDS = {
    **dict.fromkeys(("mm", "bmm", "baddbmm"), "matmul"),
    **dict.fromkeys(("clone", "copy", "_to_copy", "_unsafe_index", "constant_pad_nd", "repeat"), "copy"),
    "rsub": "sub",
    "hardtanh": "hardtanh",
    "clamp_min": "clamp",
    "linalg_vector_norm": "norm",
}
OPERATIONS = {
    *("relu", "gelu", "tanh", "sigmoid", "add", "sub", "mul", "div", "pow", "neg", "sin", "cos", "exp", "sqrt"),
    *("rsqrt", "mean", "sum", "cat", "clamp"),
}
# Memory that is asked for and not written, and numbers that come along with a launch.
ALLOCATIONS = {"scalar_tensor", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}


class OperatorTrace(TorchDispatchMode):
    """Counts the operators that move memory."""

    def __init__(self):
        super().__init__()
        self.moved = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = torch.device("meta")
        args = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in args]
        name = func.overloadpacket.__name__
        name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if name not in WHOLE:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        places = {tensor.untyped_storage()._cdata for tensor in given}
        elsewhere = any(tensor.untyped_storage()._cdata not in places for tensor in made)
        # In inference dropout returns its input, also in place.
        if not (elsewhere or func._schema.is_mutable) or name in ALLOCATIONS or name == "dropout":
            return result
        if all(tensor.ndim == 0 and not tensor.is_floating_point() for tensor in made):
            return result  # a counter of batches, which is one integer
        kind = WHOLE.get(name) or KINDS.get(name) or (name if name in OPERATIONS else f"aten.{name}")
        self.moved[kind] += 1
        if name in ("linear", "layer_norm", "group_norm") and not given[0].is_contiguous():
            self.moved["copy"] += 1
        return result


class TinyDecoder(nn.Module):
    """A decoder block as language models write it: rotary embedding, a norm in fp32, grouped keys, a gated layer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.qkv, self.out = nn.Linear(32, 64, bias=False), nn.Linear(32, 32, bias=False)
        self.gate, self.up, self.down = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 32)

    def norm(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def rotate(self, x):
        positions = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
        angles = torch.cat([positions[:, None] * torch.ones(4, device=x.device)] * 2, -1)
        half = torch.cat([-x[..., 4:], x[..., :4]], -1)
        return x * angles.cos().to(x.dtype) + half * angles.sin().to(x.dtype)

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = self.qkv(self.norm(x)).split((32, 16, 16), -1)
        q, k, v = (t.unflatten(-1, (-1, 8)).transpose(1, 2) for t in (q, k, v))
        attention = nn.functional.scaled_dot_product_attention(
            self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.silu(self.gate(self.norm(x))) * self.up(x))


IMAGE = (2, 3, 64, 64)
IDS = torch.zeros((2, 6), dtype=torch.int64)
MODELS = ("resnet18", "mobilenet_v3_small", "densenet121", "swin_t", "convnext_tiny", "shufflenet_v2_x1_0", "googlenet")
CASES = [
    *((name, IMAGE) for name in (*MODELS, "fcn_resnet50")),
    ("vit_b_16", (1, 3, 224, 224)),
    (TinyDecoder().bfloat16(), IDS),
    (TinyDecoder(), IDS),
]


@pytest.mark.parametrize(("model", "inputs"), CASES, ids=[str(case[0])[:18].split("(")[0] for case in CASES])
def test_every_operator_that_moves_memory_is_accounted_for(model, inputs):
    module = build(model) if isinstance(model, str) else model
    network = network_of(module, inputs)
    accounted = Counter()
    for entry in network:
        accounted[entry.operation.kind] += entry.count
    for dropped in network.dropped:
        accounted[dropped.name] += dropped.count
    dtype = inputs.dtype if isinstance(inputs, torch.Tensor) else torch.float32
    shape = tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else inputs
    with torch.inference_mode(), OperatorTrace() as independent:
        module.eval().to("meta")(torch.empty(shape, dtype=dtype, device="meta"))
    assert accounted == independent.moved
    # What the list of ignored operators names has moved no memory here.
    assert not {name for name in independent.moved if name.removeprefix("aten.") in FREE}
