"""Gradients that a backward adds up: of every tensor with several readers, against a backward that PyTorch runs."""

from collections import Counter
from functools import partial

import pytest
import torch
from modules import module
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import joulecast

TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float64: "fp64"}


class Sums(TorchDispatchMode):
    """Counts what the engine adds up, which is done after a node of the graph has run and before the next one does."""

    def __init__(self):
        super().__init__()
        self.found, self.is_inside, self.run = Counter(), False, torch.autograd.backward

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        is_sum = func.overloadpacket in (torch.ops.aten.add, torch.ops.aten.add_) and isinstance(args[1], torch.Tensor)
        if is_sum and not self.is_inside and result.ndim:
            parts = torch.view_as_real(result) if result.is_complex() else result
            self.found[tuple(parts.shape), TYPES[parts.dtype]] += 1
        return result

    def backward(self, tensors, gradients):
        """Also of the graph that a checkpoint makes during the backward of the whole one."""
        nodes, left = set(), [tensor.grad_fn for tensor in tensors]
        while left:
            node = left.pop()
            if node is None or node in nodes:
                continue
            nodes.add(node)
            left.extend(source for source, _ in node.next_functions)
            if type(node).__name__ != "AccumulateGrad":
                node.register_prehook(lambda _: setattr(self, "is_inside", True))
                node.register_hook(lambda *_: setattr(self, "is_inside", False))
        before, self.is_inside = self.is_inside, False
        self.run(tensors, gradients)
        self.is_inside = before


def sums_of_pytorch(model, inputs, monkeypatch):
    sums = Sums()
    result = model.train()(*inputs)
    outputs = list(result) if isinstance(result, tuple) else [result]
    monkeypatch.setattr(torch.autograd, "backward", sums.backward)
    with sums:
        torch.autograd.backward(outputs, list(map(torch.ones_like, outputs)))
    return sums.found


class Cubed(torch.autograd.Function):
    """A function whose forward reads its input several times, and which is one node of the graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def of_layer(function, *, learned=True):
    """A function of the module and of what its first layer makes of the input."""
    parts = {name: nn.Linear(8, 8) for name in ("first", "other", "third")}
    parts["other"].requires_grad_(learned)
    return lambda: module(lambda self, x: function(self, self.first(x)), **parts)


def without_gradient(function, *given):
    with torch.no_grad():
        return function(*given)


def into_slices(self, h):
    made = h.new_zeros(6, 8)
    made[:4] = h
    made[2:] += self.other(h)
    return made * h.mean()


def in_place_on_a_view(self, h):
    whole = h * 1.0
    rows, others = whole[:2], whole[1:]
    rows.mul_(2.0)
    return others.exp().sum() + others.sum() + rows.sum() + whole.sum()


def shifted_windows(self, h):
    """As Swin masks its attention: what is new takes the type of a learned tensor, and no gradient."""
    mask = h.new_zeros(4, 8)
    mask[0, 1:] = -100.0
    return self.other(h + mask + torch.zeros_like(h) * torch.rand_like(h))


def into_a_detached_tensor(self, h):
    kept = h.detach()
    kept += self.other(h.clone())
    return kept + 2 * kept + h


def autocast(self, h, **options):
    with torch.autocast("cpu", dtype=torch.bfloat16, **options):
        low = self.other(h)
        low = low + self.other(low) + self.third(low.relu())
        with torch.autocast("cpu", enabled=False):
            high = self.third(low.float()) + low.float()
        return self.other(high) + high


def cells(cell):
    def forward(self, x):
        state = self.cell(x[0])
        for step in x[1:]:
            state = self.cell(step, state)
        return state

    return lambda: module(forward, cell=cell(8, 8))


def shared_embedding():
    made = module(
        lambda self, x: self.out(self.layer(self.table((x > 0).long()[:, 0]))),
        table=nn.Embedding(8, 8),
        layer=nn.Linear(8, 8),
        out=nn.Linear(8, 8, bias=False),
    )
    made.out.weight = made.table.weight
    return made


MODELS = {
    "residual": of_layer(lambda self, h: h + self.other(h)),
    "one tensor twice": of_layer(lambda self, h: torch.cat([h * h, h, h])),
    "views": of_layer(lambda self, h: h.view(2, -1).sum() + h.t().sum() + h[:2].sum() + h.reshape(-1).sum()),
    "broadcast": of_layer(lambda self, h: h + h.mean(0) + self.other.bias + self.other.bias.expand(4, 8)),
    "parts": of_layer(lambda self, h: (lambda a, b: a * b + a)(*h.chunk(2, -1))),
    "detached": of_layer(lambda self, h: h + (h - h.detach()).tanh()),
    "no gradient": of_layer(lambda self, h: h + without_gradient(self.other, h) * h),
    "unused": of_layer(lambda self, h: (self.other(h), h + self.third(h))[1]),
    "outputs": of_layer(lambda self, h: (h, self.other(h), h)),
    "frozen between": of_layer(lambda self, h: h + self.other(h) + self.third(h), learned=False),
    "data twice": lambda: module(lambda self, x: x + self.layer(x), layer=nn.Linear(8, 8)),
    "in place": of_layer(lambda self, h: h + F.relu(self.other(h), inplace=True) + self.third(h).add_(h)),
    "in place on a view": of_layer(in_place_on_a_view),
    "into slices": of_layer(into_slices),
    "into a detached tensor": of_layer(into_a_detached_tensor),
    "new tensors": of_layer(shifted_windows),
    "shared": lambda: (lambda layer: nn.Sequential(layer, nn.ReLU(), layer, nn.Tanh(), layer))(nn.Linear(8, 8)),
    "shared with a table": shared_embedding,
    "attention": of_layer(lambda self, h: F.scaled_dot_product_attention(*[h[None]] * 3)),
    "normalized": of_layer(lambda self, h: F.layer_norm(h, (8,), self.other.bias, self.other.bias) + h),
    "lstm cells": cells(nn.LSTMCell),
    "gru cells": cells(nn.GRUCell),
    "function": of_layer(lambda self, h: Cubed.apply(h) + h),
    "complex": of_layer(lambda self, h: torch.fft.irfft((lambda f: f * f + f)(torch.fft.rfft(h)))),
    "types": of_layer(lambda self, h: (h.double().exp() + h.double()).float() + h),
    "autocast": of_layer(autocast),
    "autocast without cache": of_layer(partial(autocast, cache_enabled=False)),
    "autocast, frozen": of_layer(autocast, learned=False),
    **{
        f"checkpoint, reentrant {reentrant}": of_layer(
            lambda self, h, reentrant=reentrant: h + checkpoint(lambda x: self.other(x) * x, h, use_reentrant=reentrant)
        )
        for reentrant in (False, True)
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_added_up_as_pytorch_does(name, monkeypatch):
    model = MODELS[name]()
    network = joulecast.extract(model, (4, 8), mode="training")
    added = [entry for entry in network if entry.operation.kind == "gradient_accumulation"]
    assert all(entry.module_paths == ("(backward)",) for entry in added)
    found = {(entry.operation.input_shapes[0], entry.operation.precision): entry.count for entry in added}
    assert found == sums_of_pytorch(model, [torch.randn(4, 8)], monkeypatch)


def test_tensors_made_anew_need_no_gradient():
    network = joulecast.extract(MODELS["new tensors"](), (4, 8), mode="training")
    found = {(e.operation.kind, e.operation.gradients): e.count for e in network if e.operation.kind in ("add", "mul")}
    assert found == {("add", "first"): 2, ("mul", "none"): 1}
